// Which way a sum goes depends on its length alone, so that all ranks go the same way.
#include "parallel/peer_communicator.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "runtime/base/error.h"

namespace weft::parallel {

using kernels::GpuEvent;
using kernels::Stream;

namespace {

constexpr size_t kShortestTimed = 4 << 10;
constexpr int kWarmUps = 3;
constexpr int kRepeats = 20;

// Of one call, on this rank.
template <class Call>
double time_us(Stream& stream, Call call) {
  for (int i = 0; i < kWarmUps; ++i) call();
  GpuEvent begin(true), end(true);
  begin.record(stream.gpu());
  for (int i = 0; i < kRepeats; ++i) call();
  end.record(stream.gpu());
  end.synchronise();
  return end.ms_since(begin) * 1e3 / kRepeats;
}

}  // namespace

PeerLimits default_peer_limits() { return {64 << 10, 1 << 20}; }

size_t peer_half_words(int ranks, const PeerLimits& largest) {
  return std::max({kernels::one_shot_words(ranks, largest.one_shot_bytes),
                   kernels::two_shot_words(ranks, largest.two_shot_bytes),
                   kernels::kPeerWordsCleared});
}

PeerLimits choose_peer_limits(std::span<const PeerTiming> timings) {
  PeerLimits limits;
  for (const PeerTiming& t : timings) {
    if (std::min(t.one_shot_us, t.two_shot_us) > t.other_us) break;
    limits.two_shot_bytes = t.bytes;
    const bool one_so_far = limits.one_shot_bytes * 2 >= t.bytes || &t == timings.data();
    if (one_so_far && t.one_shot_us <= t.two_shot_us) limits.one_shot_bytes = t.bytes;
  }
  return limits;
}

PeerCommunicator::PeerCommunicator(std::unique_ptr<Communicator> other,
                                   std::unique_ptr<Communicator> host,
                                   std::unique_ptr<PeerMemory> memory, Stream& stream)
    : other_(std::move(other)),
      host_(std::move(host)),
      memory_(std::move(memory)),
      stream_(stream) {
  set_limits(default_peer_limits());
}

void PeerCommunicator::set_limits(const PeerLimits& limits) {
  const size_t words = memory_->group().half_words;
  limits_.two_shot_bytes = std::min(limits.two_shot_bytes, kernels::two_shot_bytes(size(), words));
  limits_.one_shot_bytes = std::min(
      {limits.one_shot_bytes, limits_.two_shot_bytes, kernels::one_shot_bytes(size(), words)});
}

double PeerCommunicator::slowest_us(double us) {
  std::vector<double> all(static_cast<size_t>(size()));
  host_->all_gather(&us, all.data(), sizeof us, stream_);
  return *std::max_element(all.begin(), all.end());
}

void PeerCommunicator::measure_limits() {
  const size_t words = memory_->group().half_words;
  const size_t most = kernels::two_shot_bytes(size(), words);
  kernels::GpuBuffer data(most);
  kernels::clear_bytes(data.data(), most, stream_.gpu());
  std::vector<PeerTiming> timings;
  for (size_t bytes = kShortestTimed; bytes <= most; bytes *= 2) {
    const size_t n = bytes / sizeof(float);
    PeerTiming t{bytes, 0, 0, 0};
    t.two_shot_us =
        slowest_us(time_us(stream_, [&] { sum(data.data(), n, DType::f32, true, stream_); }));
    t.one_shot_us = t.two_shot_us + 1;
    if (bytes <= kernels::one_shot_bytes(size(), words))
      t.one_shot_us =
          slowest_us(time_us(stream_, [&] { sum(data.data(), n, DType::f32, false, stream_); }));
    t.other_us = slowest_us(
        time_us(stream_, [&] { other_->all_reduce(data.data(), n, DType::f32, stream_); }));
    timings.push_back(t);
  }
  set_limits(choose_peer_limits(timings));
}

void PeerCommunicator::sum(void* data, size_t n, DType dtype, bool two_shot, Stream& stream) {
  kernels::GpuPeerSum args;
  args.group = memory_->group();
  args.data = {data, dtype};
  args.n = n;
  args.two_shot = two_shot;
  gpu_peer_sum(args, stream.gpu());
}

void PeerCommunicator::all_reduce(void* data, size_t n, DType dtype, Stream& stream) {
  WEFT_EXPECT(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
  const size_t bytes = n * dtype_bytes(dtype);
  if (!sums(bytes)) return other_->all_reduce(data, n, dtype, stream);
  sum(data, n, dtype, bytes > limits_.one_shot_bytes, stream);
}

void PeerCommunicator::all_reduce_tree(float* data, size_t n, Stream& stream) {
  if (!sums(n * sizeof(float))) return other_->all_reduce_tree(data, n, stream);
  if (!std::has_single_bit(static_cast<unsigned>(size())))
    throw run_error("a sum by a fixed tree needs a power of two of ranks, not {}", size());
  sum(data, n, DType::f32, n * sizeof(float) > limits_.one_shot_bytes, stream);
}

bool PeerCommunicator::all_reduce_residual(const ResidualSum& a, Stream& stream) {
  const size_t bytes = a.tokens * a.hidden * sizeof(float);
  if (!sums(bytes) || (a.norm_weight && a.tokens > kernels::kMostPeerRows)) return false;
  kernels::GpuPeerResidual args;
  args.group = memory_->group();
  args.partial = a.partial;
  args.bias = a.bias;
  args.residual = a.residual;
  args.norm_weight = a.norm_weight;
  args.normed = a.normed;
  args.eps = a.eps;
  args.tokens = a.tokens;
  args.hidden = a.hidden;
  args.two_shot = bytes > limits_.one_shot_bytes;
  args.dependent_launch = a.dependent_launch;
  gpu_peer_residual(args, stream.gpu());
  return true;
}

void PeerCommunicator::all_gather(const void* mine, void* all, size_t bytes, Stream& stream) {
  other_->all_gather(mine, all, bytes, stream);
}

void PeerCommunicator::reduce_scatter(const float* in, float* out, size_t n, Stream& stream) {
  other_->reduce_scatter(in, out, n, stream);
}

void PeerCommunicator::all_to_all(const void* in, void* out, size_t bytes, Stream& stream) {
  other_->all_to_all(in, out, bytes, stream);
}

void PeerCommunicator::broadcast(void* data, size_t bytes, int root, Stream& stream) {
  other_->broadcast(data, bytes, root, stream);
}

Ticket PeerCommunicator::start(std::span<const Transfer> transfers, Stream& stream) {
  return other_->start(transfers, stream);
}

size_t PeerCommunicator::capturable_sum_bytes() const {
  return other_->capturable() ? SIZE_MAX : limits_.two_shot_bytes;
}

void PeerCommunicator::poll() {
  if (memory_->aborted()) throw run_error("a sum over ranks was ended while it waited for a peer");
  other_->poll();
}

void PeerCommunicator::abort() {
  memory_->abort();
  other_->abort();
}

void PeerCommunicator::close() {
  memory_->close(*host_, stream_);
  other_->close();
  host_->close();
}

}  // namespace weft::parallel
