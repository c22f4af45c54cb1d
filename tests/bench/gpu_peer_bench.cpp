// What an all-reduce over peer memory costs by itself: groups of 2, 4 and 8 ranks that are branches
// of one process on one GPU, so that they run at once and no time slice or link counts. Each rank
// records a chain of sums into a graph, all graphs run side by side; the time of a chain over its
// length is one sum's. Prints ranks, bytes, way, µs. Latency between GPUs comes on top.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "kernels/gpu_device.h"
#include "kernels/gpu_devices.h"
#include "kernels/gpu_peer_reduce.h"

namespace weft::kernels {
namespace {

constexpr int kChain = 100;
constexpr int kRounds = 5;
constexpr size_t kHidden = 7168;  // of the 33B model
constexpr size_t kMostTokens = 32;
constexpr std::chrono::seconds kLimit{10};

enum class Way { one_shot, two_shot, one_shot_residual, one_shot_norm };
const char* name_of(Way way) {
  switch (way) {
    case Way::one_shot:
      return "one-shot";
    case Way::two_shot:
      return "two-shot";
    case Way::one_shot_residual:
      return "one-shot + residual";
    default:
      return "one-shot + residual + norm";
  }
}

struct Rank {
  GpuStream stream;
  GpuBuffer memory, state, data, residual, normed, weight;
  PeerGroup group;
  GpuGraph graph;
  GpuEvent begin{true}, end{true};
};

class Bench {
 public:
  explicit Bench(int n_ranks);
  // Of one sum on the slowest rank; the best of some rounds. Negative where ranks got stuck.
  double time_us(Way way, size_t tokens);

 private:
  void enqueue(Rank& rank, Way way, size_t tokens);
  bool round();

  std::vector<Rank> ranks_;
  PinnedBuffer abort_{sizeof(uint32_t)};
};

Bench::Bench(int n_ranks) : ranks_(static_cast<size_t>(n_ranks)) {
  const size_t n = kMostTokens * kHidden, bytes = n * sizeof(float);
  const size_t words = std::max(one_shot_words(n_ranks, bytes), two_shot_words(n_ranks, bytes));
  for (Rank& rank : ranks_) {
    rank.memory = GpuBuffer(2 * words * kPeerWordBytes);
    rank.state = GpuBuffer(sizeof(PeerState));
    rank.data = GpuBuffer(bytes);
    rank.residual = GpuBuffer(2 * n);
    rank.normed = GpuBuffer(2 * n);
    rank.weight = GpuBuffer(2 * kHidden);
    for (GpuBuffer* buffer : {&rank.memory, &rank.state, &rank.data, &rank.residual, &rank.weight})
      clear_bytes(buffer->data(), buffer->bytes(), rank.stream);
    rank.stream.synchronise();
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    PeerGroup& group = ranks_[r].group;
    for (size_t p = 0; p < ranks_.size(); ++p) group.memory[p] = ranks_[p].memory.data();
    group.half_words = words;
    group.rank = static_cast<int>(r);
    group.ranks = n_ranks;
    group.state = reinterpret_cast<PeerState*>(ranks_[r].state.data());
    group.abort = reinterpret_cast<uint32_t*>(abort_.data());
  }
}

void Bench::enqueue(Rank& rank, Way way, size_t tokens) {
  if (way == Way::one_shot || way == Way::two_shot) {
    GpuPeerSum sum;
    sum.group = rank.group;
    sum.data = {rank.data.data(), DType::f32};
    sum.n = tokens * kHidden;
    sum.two_shot = way == Way::two_shot;
    sum.dependent_launch = true;
    return gpu_peer_sum(sum, rank.stream);
  }
  GpuPeerResidual args;
  args.group = rank.group;
  args.partial = reinterpret_cast<const float*>(rank.data.data());
  args.residual = {rank.residual.data(), DType::bf16};
  if (way == Way::one_shot_norm) args.norm_weight = {rank.weight.data(), DType::bf16};
  args.normed = {rank.normed.data(), DType::bf16};
  args.tokens = tokens;
  args.hidden = kHidden;
  args.dependent_launch = true;
  gpu_peer_residual(args, rank.stream);
}

bool Bench::round() {
  for (Rank& rank : ranks_) {
    rank.begin.record(rank.stream);
    rank.graph.launch(rank.stream);
    rank.end.record(rank.stream);
  }
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  for (Rank& rank : ranks_) {
    while (!rank.end.happened()) {
      if (std::chrono::steady_clock::now() > limit) {
        *reinterpret_cast<volatile uint32_t*>(abort_.data()) = 1;
        rank.stream.synchronise();
        return false;
      }
      std::this_thread::yield();
    }
  }
  return true;
}

double Bench::time_us(Way way, size_t tokens) {
  for (Rank& rank : ranks_)
    rank.graph = GpuGraph(rank.stream, [&] {
      for (int i = 0; i < kChain; ++i) enqueue(rank, way, tokens);
    });
  double best = 1e9;
  for (int i = 0; i < kRounds; ++i) {
    if (!round()) return -1;
    // From the last rank's begin: the chains can't advance before it has.
    double slowest = 1e9;
    for (Rank& rank : ranks_)
      slowest = std::min(slowest, rank.end.ms_since(rank.begin) * 1e3 / kChain);
    best = std::min(best, slowest);
  }
  return best;
}

int run() {
  const GpuQuery query = query_gpus();
  if (query.gpus.empty()) {
    std::fprintf(stderr, "no GPU: %s\n", query.why_none.c_str());
    return 77;
  }
  std::printf("%5s %8s %-28s %8s\n", "ranks", "bytes", "way", "us");
  for (const int ranks : {2, 4, 8}) {
    Bench bench(ranks);
    for (const size_t tokens : {1, 2, 4, 8, 16, 32})
      for (const Way way :
           {Way::one_shot, Way::two_shot, Way::one_shot_residual, Way::one_shot_norm}) {
        const double us = bench.time_us(way, tokens);
        if (us < 0) {
          std::printf("%5d %8zu %-28s stuck\n", ranks, tokens * kHidden * 4, name_of(way));
          return 1;
        }
        std::printf("%5d %8zu %-28s %8.2f\n", ranks, tokens * kHidden * 4, name_of(way), us);
      }
  }
  return 0;
}

}  // namespace
}  // namespace weft::kernels

// Kernels that wait for each other must not share a queue, nor wait until one is loaded.
int main() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  try {
    return weft::kernels::run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
