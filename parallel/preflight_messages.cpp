// Sums whose result is a whole number, bytes that depend on their place, and a clock.
#include "parallel/preflight_messages.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/gpu_device.h"
#include "parallel/gather.h"
#include "parallel/guardian_page.h"
#include "parallel/host_communicator.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr int kGroupTag = 11;  // of MPI_Comm_create_group; a GPU's take the next one too
constexpr int kEdgesTag = 13;
constexpr size_t kSummed = 4099;  // elements: no multiple of anything
constexpr size_t kPassed = 10'007;
constexpr size_t kLargeBytes = size_t{4} << 20;
constexpr size_t kLargeGpuBytes = size_t{32} << 20;  // a link of GPUs passes 4 MiB in ten us
constexpr size_t kSmallBytes = 8;
constexpr int kSmallRounds = 50;
constexpr int kLargeRounds = 8;

std::byte byte_at(size_t i, int rank) {
  return static_cast<std::byte>((i * 131 + static_cast<size_t>(rank) * 29 + 7) & 0xff);
}

// The pairs of ranks that an edge of the plan joins, each once.
std::vector<EdgeRate> edges_of(const MpiSession& session, const DeviceMesh& mesh) {
  std::vector<EdgeRate> edges;
  const std::vector<int>& node_of = session.node_of();
  for (size_t stage = 0; stage + 1 < mesh.n_stages(); ++stage)
    for (int receiver = 0; receiver < mesh.stages[stage + 1].tp; ++receiver) {
      const EdgeSlice slice = edge_slice(mesh, stage, stage + 1, kPassed, receiver);
      EdgeRate edge{slice.from, slice.to};
      edge.same_host =
          node_of[static_cast<size_t>(slice.from)] == node_of[static_cast<size_t>(slice.to)];
      edges.push_back(edge);
    }
  return edges;
}

std::vector<int> all_ranks(int n) {
  std::vector<int> ranks;
  for (int i = 0; i < n; ++i) ranks.push_back(i);
  return ranks;
}

// Memory where the stream's operations take it: the host's or its GPU's.
class Room {
 public:
  Room(size_t bytes, kernels::Stream& stream) : stream_(stream.gpu()) {
    if (stream_ != nullptr)
      on_gpu_ = kernels::GpuBuffer(bytes);
    else
      on_host_.resize(bytes);
  }
  void* data() { return stream_ != nullptr ? on_gpu_.data() : on_host_.data(); }
  void write(const void* from, size_t bytes) { copy(data(), from, bytes); }
  void read(void* to, size_t bytes) { copy(to, data(), bytes); }

 private:
  void copy(void* to, const void* from, size_t bytes) const {
    if (stream_ == nullptr) {
      std::memcpy(to, from, bytes);
      return;
    }
    kernels::copy_bytes(to, from, bytes, stream_);
    kernels::synchronise(stream_);
  }

  kernels::CudaStream stream_;
  kernels::GpuBuffer on_gpu_;
  std::vector<std::byte> on_host_;
};

}  // namespace

PreflightMessages::PreflightMessages(const MpiSession& session, const DeviceMesh& mesh,
                                     kernels::Stream& stream,
                                     const std::optional<PreflightOnGpu>& gpu)
    : session_(session), mesh_(mesh), stream_(stream) {
  const std::vector<int> group = mesh.ranks_of(mesh.stage_of(session.rank()));
  const size_t sum_bytes = kSummed * sizeof(float);
  group_ = communicator(group, kGroupTag, sum_bytes, gpu);
  edges_ = communicator(all_ranks(session.size()), kEdgesTag, 0, gpu);
}

// As a run sets them up. Agreed: where one group can't be had, no rank goes on.
std::unique_ptr<Communicator> PreflightMessages::communicator(
    std::span<const int> ranks, int tag, size_t sum_bytes,
    const std::optional<PreflightOnGpu>& gpu) const {
  if (!gpu) return make_host_communicator(session_, ranks, tag, std::max(sum_bytes, sizeof(float)));
  GpuCommunicator made;
  agree(session_, [&] {
    GpuCommunicatorOptions options;
    options.transport = gpu->transport;
    options.shares_gpu = gpu->shares_gpu;
    options.sum_bytes = sum_bytes;
    options.staging = {sum_bytes * ranks.size() + sizeof(float),
                       std::max(kLargeGpuBytes, 2 * kPassed * ranks.size()), 1};
    made = make_gpu_communicator(session_, ranks, tag, options, stream_);
  });
  return std::move(made.communicator);
}

// Rank r of n adds (r + 1)(i mod 13): whole numbers that float32 holds exactly, in any order.
void PreflightMessages::check_groups() {
  const int rank = group_->rank(), size = group_->size();
  std::vector<float> sum(kSummed);
  for (size_t i = 0; i < kSummed; ++i) sum[i] = static_cast<float>((rank + 1) * int(i % 13));
  Room sum_room(kSummed * sizeof(float), stream_);
  sum_room.write(sum.data(), kSummed * sizeof(float));
  group_->all_reduce(sum_room.data(), kSummed, DType::f32, stream_);
  sum_room.read(sum.data(), kSummed * sizeof(float));
  std::vector<std::byte> mine(kSummed), all(kSummed * static_cast<size_t>(size));
  for (size_t i = 0; i < kSummed; ++i) mine[i] = byte_at(i, rank);
  Room mine_room(kSummed, stream_), all_room(all.size(), stream_);
  mine_room.write(mine.data(), kSummed);
  group_->all_gather(mine_room.data(), all_room.data(), kSummed, stream_);
  all_room.read(all.data(), all.size());
  const int ranks_sum = size * (size + 1) / 2;
  for (size_t i = 0; i < kSummed; ++i) {
    const auto want = static_cast<float>(ranks_sum * int(i % 13));
    if (sum[i] != want)
      throw run_error(
          "a sum over its tensor-parallel group of {} ranks came out as {} at {}, not {}", size,
          sum[i], i, want);
  }
  for (int from = 0; from < size; ++from)
    for (size_t i = 0; i < kSummed; ++i)
      if (all[static_cast<size_t>(from) * kSummed + i] != byte_at(i, from))
        throw run_error(
            "what rank {} of its tensor-parallel group gave to all came out wrong at {}", from, i);
}

// Every edge at once, as in a run.
void PreflightMessages::check_edges() {
  const int me = session_.rank();
  struct Passing {
    int from;
    Room room;
  };
  std::vector<Passing> arriving;
  std::vector<std::byte> bytes(kPassed);
  for (size_t i = 0; i < kPassed; ++i) bytes[i] = byte_at(i, me);
  Room leaving(kPassed, stream_);
  leaving.write(bytes.data(), kPassed);
  std::vector<Transfer> transfers;
  const std::vector<EdgeRate> edges = edges_of(session_, mesh_);
  arriving.reserve(edges.size());
  for (const EdgeRate& edge : edges) {
    if (edge.from == me)
      transfers.push_back({Transfer::Kind::send, edge.to, leaving.data(), kPassed});
    if (edge.to != me) continue;
    arriving.push_back({edge.from, Room(kPassed, stream_)});
    transfers.push_back({Transfer::Kind::recv, edge.from, arriving.back().room.data(), kPassed});
  }
  edges_->exchange(transfers, stream_);
  for (Passing& passing : arriving) {
    passing.room.read(bytes.data(), kPassed);
    for (size_t i = 0; i < kPassed; ++i)
      if (bytes[i] != byte_at(i, passing.from))
        throw run_error("the message over the edge from rank {} came out wrong at byte {}",
                        passing.from, i);
  }
}

void PreflightMessages::time_edge(EdgeRate& edge) {
  const bool sends = session_.rank() == edge.from;
  if (!sends && session_.rank() != edge.to) return;
  const size_t large_bytes = stream_.gpu() != nullptr ? kLargeGpuBytes : kLargeBytes;
  Room room(large_bytes, stream_);
  const auto pass = [&](bool send, size_t n) {
    const Transfer transfer{send ? Transfer::Kind::send : Transfer::Kind::recv,
                            sends ? edge.to : edge.from, room.data(), n};
    edges_->exchange({&transfer, 1}, stream_);
    if (stream_.gpu() != nullptr) kernels::synchronise(stream_.gpu());
  };
  // There with n bytes and back with few, so that the sender's clock sees the arrival. The best
  // round counts: what else runs on the hosts says nothing of the way between them.
  const auto round_us = [&](size_t n, int rounds) {
    int64_t best = std::numeric_limits<int64_t>::max();
    for (int round = 0; round < rounds; ++round) {
      const int64_t begin = monotonic_ns();
      pass(sends, n);
      pass(!sends, kSmallBytes);
      best = std::min(best, monotonic_ns() - begin);
    }
    return static_cast<double>(best) * 1e-3;
  };
  edge.latency_us = round_us(kSmallBytes, kSmallRounds) / 2;
  const double large_us = round_us(large_bytes, kLargeRounds) - edge.latency_us;
  edge.gbps = static_cast<double>(large_bytes) * 1e-3 / std::max(large_us, 1.0);
}

// One at a time: the barrier between them keeps the way free.
std::vector<EdgeRate> PreflightMessages::time_edges() {
  std::vector<EdgeRate> edges = edges_of(session_, mesh_);
  for (EdgeRate& edge : edges) {
    agree(session_, [] {});
    time_edge(edge);
    const std::vector<EdgeRate> all = gather(session_, edge);
    edge = all[static_cast<size_t>(edge.from)];
  }
  return edges;
}

void PreflightMessages::close() {
  edges_->close();
  group_->close();
}

}  // namespace weft::parallel
