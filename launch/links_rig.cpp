// Calls are timed as nccl-tests times them: enqueued one after another, over the wall clock of them
// all.
#include "launch/links_rig.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <vector>

#include "kernels/gpu_ipc.h"
#include "kernels/gpu_links.h"
#include "kernels/link_pattern.h"
#include "parallel/gpu_communicator.h"
#include "parallel/group_agreement.h"
#include "parallel/host_communicator.h"

namespace weft::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHostTag = 200;  // of MPI_Comm_create_group
constexpr int kGroupTag = 201;
constexpr int kWarmUps = 2;
// Counters tell KiB and take microseconds to read: of shorter messages they would say nothing.
constexpr size_t kLeastCounted = size_t{1} << 20;
// Of a group's sums by peer memory and by a tree: those of decode steps.
constexpr size_t kMostSum = size_t{4} << 20;

double us_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

std::optional<kernels::GpuStream> stream_on(const Device& device) {
  if (!device.gpu) return std::nullopt;
  return kernels::GpuStream();
}

size_t whole_pages(size_t bytes) {
  return (bytes + kernels::kIpcPageBytes - 1) / kernels::kIpcPageBytes * kernels::kIpcPageBytes;
}

std::vector<int> all_ranks(int n) {
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

LinkRig::LinkRig(const parallel::MpiSession& session, const Device& device,
                 const DeviceOptions& options, const LinkPlan& plan)
    : session_(session),
      plan_(plan),
      gpu_stream_(stream_on(device)),
      stream_(pool_, gpu_stream_ ? gpu_stream_->get() : nullptr) {
  const std::vector<int> all = all_ranks(session.size());
  const size_t largest = plan.largest();
  host_ = parallel::make_host_communicator(session, all, kHostTag, sizeof(double));
  if (!on_gpu()) {
    parallel::agree(session, [&] {
      host_in_ = Pages(largest);
      host_out_ = Pages(largest);
    });
    const size_t sums = plan.test == LinkTest::all_reduce ? largest : sizeof(float);
    group_ = parallel::make_host_communicator(session, all, kGroupTag, sums);
    return;
  }
  parallel::agree(session, [&] {
    gpu_in_ = kernels::GpuBuffer(whole_pages(largest));
    gpu_out_ = kernels::GpuBuffer(whole_pages(largest));
    gpu_wrong_ = kernels::GpuBuffer(sizeof(uint64_t));
    counters_ = std::make_unique<parallel::NvLinkCounters>(device.name.substr(4));
    no_wire_ = counters_->why_none();
  });
  parallel::GpuCommunicatorOptions wanted;
  wanted.transport = options.transport;
  wanted.shares_gpu = device.n_sharing > 1;
  wanted.sum_bytes = plan.test == LinkTest::all_reduce ? std::min(largest, kMostSum) : 0;
  wanted.staging = {2 * largest, 2 * largest, 2};
  parallel::agree(session, [&] {
    parallel::GpuCommunicator made =
        parallel::make_gpu_communicator(session, all, kGroupTag, wanted, stream_);
    transport_ = made.words;
    group_ = std::move(made.communicator);
  });
}

void LinkRig::fill(std::byte* to, size_t n, size_t first, int rank) {
  kernels::LinkPattern args;
  args.data = {to, plan_.dtype};
  args.n = n;
  args.first = first;
  args.first_rank = rank;
  args.end_rank = rank + 1;
  args.mask = kernels::pattern_mask(plan_.dtype, plan_.n_ranks);
  on_gpu() ? kernels::gpu_fill_pattern(args, stream_.gpu()) : kernels::fill_pattern(args);
}

size_t LinkRig::count_wrong(std::byte* data, size_t n, size_t first, int first_rank, int end_rank) {
  kernels::LinkPattern args;
  args.data = {data, plan_.dtype};
  args.n = n;
  args.first = first;
  args.first_rank = first_rank;
  args.end_rank = end_rank;
  args.mask = kernels::pattern_mask(plan_.dtype, plan_.n_ranks);
  if (!on_gpu()) return kernels::count_wrong(args);
  uint64_t n_wrong = 0;
  auto* counter = reinterpret_cast<uint64_t*>(gpu_wrong_.data());
  kernels::clear_bytes(counter, sizeof *counter, stream_.gpu());
  kernels::gpu_count_wrong(args, counter, stream_.gpu());
  kernels::copy_bytes(&n_wrong, counter, sizeof n_wrong, stream_.gpu());
  settle();
  return n_wrong;
}

// The first time may find some of them asleep.
void LinkRig::meet() {
  for (int i = 0; i < 2; ++i) parallel::wait_for_group(*host_, stream_);
}

void LinkRig::settle() {
  if (!on_gpu()) return;
  group_->poll();
  kernels::synchronise(stream_.gpu());
  group_->poll();
}

double LinkRig::average(double value) {
  std::vector<double> all(static_cast<size_t>(size()));
  host_->all_gather(&value, all.data(), sizeof value, stream_);
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
}

size_t LinkRig::total(size_t value) {
  std::vector<size_t> all(static_cast<size_t>(size()));
  host_->all_gather(&value, all.data(), sizeof value, stream_);
  return std::accumulate(all.begin(), all.end(), size_t{0});
}

std::optional<double> LinkRig::average(const std::optional<double>& value) {
  if (total(value ? 1 : 0) < static_cast<size_t>(size())) {
    average(0.0);
    return std::nullopt;
  }
  return average(value.value_or(0.0));
}

std::optional<uint64_t> LinkRig::wire_bytes(size_t bytes) const {
  if (counters_ == nullptr || bytes < kLeastCounted) return std::nullopt;
  const auto counted = counters_->read();
  if (!counted) return std::nullopt;
  return counted->sent;
}

Loop LinkRig::time(const std::function<void()>& call, size_t bytes) {
  double one_us = 0;
  for (int i = 0; i < kWarmUps; ++i) {  // the first one connects ranks and touches pages
    settle();
    const Clock::time_point start = Clock::now();
    call();
    settle();
    one_us = us_between(start, Clock::now());
  }
  Loop loop;
  loop.n_calls = std::clamp(static_cast<size_t>(plan_.seconds * 1e6 / std::max(one_us, 0.1)),
                            size_t{1}, plan_.iterations);
  host_->broadcast(&loop.n_calls, sizeof loop.n_calls, 0, stream_);
  meet();
  const std::optional<uint64_t> before = wire_bytes(bytes);
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < loop.n_calls; ++i) call();
  settle();
  const double all_us = us_between(start, Clock::now());
  const std::optional<uint64_t> after = wire_bytes(bytes);
  loop.us = all_us / static_cast<double>(loop.n_calls);
  if (before && after) loop.wire_gbps = static_cast<double>(*after - *before) / all_us * 1e-3;
  return loop;
}

void LinkRig::close() {
  settle();
  group_->close();
  host_->close();
}

}  // namespace weft::launch
