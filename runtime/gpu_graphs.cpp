// Buckets in ascending order, so that the first that fits is the smallest.
#include "runtime/gpu_graphs.h"

#include <algorithm>

namespace weft::runtime {
namespace {

constexpr size_t kLeastContext = 1024;
constexpr size_t kContextFactor = 4;

std::vector<size_t> row_buckets(const planner::Limits& limits) {
  if (!limits.graph_buckets.empty()) {
    std::vector<size_t> rows = limits.graph_buckets;
    std::erase_if(rows, [&](size_t n) { return n == 0 || n > 2 * limits.max_sequences; });
    std::sort(rows.begin(), rows.end());
    return rows;
  }
  std::vector<size_t> rows = {1};
  while (rows.back() < limits.max_sequences) {
    const size_t last = rows.back();
    const bool is_power = (last & (last - 1)) == 0;
    rows.push_back(last < 64 ? 2 * last : is_power ? last + last / 2 : last / 3 * 4);
  }
  return rows;
}

std::vector<size_t> context_buckets(const planner::Limits& limits) {
  std::vector<size_t> contexts;
  for (size_t n = kLeastContext; n < limits.context; n *= kContextFactor) contexts.push_back(n);
  contexts.push_back(limits.context);
  return contexts;
}

}  // namespace

std::vector<GraphBucket> graph_buckets(const planner::Limits& limits) {
  std::vector<GraphBucket> buckets;
  for (const size_t rows : row_buckets(limits))
    for (const size_t context : context_buckets(limits)) buckets.push_back({rows, context});
  return buckets;
}

GpuGraphs::GpuGraphs(const std::vector<GraphBucket>& buckets, kernels::CudaStream stream,
                     const Step& step, const std::function<void()>& settle) {
  graphs_.reserve(buckets.size());
  for (const GraphBucket& bucket : buckets) {
    step(bucket);  // loads kernels, which a recording stream may not
    settle();
    graphs_.push_back({bucket, kernels::GpuGraph(stream, [&] { step(bucket); })});
  }
}

const GpuGraphs::Captured* GpuGraphs::find(size_t rows, size_t context) const {
  for (const Captured& captured : graphs_)
    if (captured.bucket.rows >= rows && captured.bucket.context >= context) return &captured;
  return nullptr;
}

}  // namespace weft::runtime
