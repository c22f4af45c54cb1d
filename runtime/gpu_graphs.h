// Decode steps as graphs, one for each bucket of rows and of context: the smallest that holds a
// batch is replayed, the rest of its rows being padding.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "kernels/gpu_device.h"
#include "planner/plan.h"

namespace weft::runtime {

struct GraphBucket {
  size_t rows = 0;
  size_t context = 0;  // no sequence is longer
  bool operator==(const GraphBucket&) const = default;
};

// The plan's buckets of rows, or 1, 2, 4, … 64, 96, 128, 192, 256, … until one holds max_sequences;
// for each, contexts of 1,024 and four times as much each, up to the plan's. In ascending order.
std::vector<GraphBucket> graph_buckets(const planner::Limits& limits);

class GpuGraphs {
 public:
  // Runs a bucket's step on the stream; nothing of a sequence may be touched by padding.
  using Step = std::function<void(const GraphBucket& bucket)>;

  GpuGraphs() = default;
  // Runs each step once, waits for it with `settle`, then records it. Throws Error where CUDA
  // refuses.
  GpuGraphs(const std::vector<GraphBucket>& buckets, kernels::CudaStream stream, const Step& step,
            const std::function<void()>& settle);

  struct Captured {
    GraphBucket bucket;
    kernels::GpuGraph graph;
  };
  // Null where no bucket is large enough.
  const Captured* find(size_t rows, size_t context) const;
  size_t size() const { return graphs_.size(); }

 private:
  std::vector<Captured> graphs_;
};

}  // namespace weft::runtime
