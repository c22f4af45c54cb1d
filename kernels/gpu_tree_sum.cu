// One thread an element: a group's sums are short beside what travels, so loads need no vectors.
#include "kernels/gpu_tree_sum.h"

#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/gpu_float.cuh"
#include "kernels/gpu_tree_sum.cuh"

namespace weft::kernels {
namespace {

constexpr size_t kThreads = 256;
constexpr size_t kMostBlocks = 528;

template <class T>
__global__ void tree_sum(const T* parts, size_t stride, const T* mine, int rank, int ranks, T* out,
                         size_t n) {
  for (size_t i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) {
    TreeSum<kMostTreeRanks> sum;
    for (int r = 0; r < ranks; ++r) {
      const T* part = r == rank && mine != nullptr ? mine : parts + r * stride;
      sum.add(r, widen(part[i]));
    }
    out[i] = narrow<T>(sum.total(ranks));
  }
}

}  // namespace

void gpu_tree_sum(const GpuTreeSum& a, CUstream_st* stream) {
  if (a.n == 0) return;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, (a.n + kThreads - 1) / kThreads));
  with_gpu_type(a.parts.dtype, [&](auto type) {
    using T = decltype(type);
    tree_sum<T><<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(a.parts.data), a.stride,
                                                 static_cast<const T*>(a.mine), a.rank, a.ranks,
                                                 static_cast<T*>(a.out), a.n);
  });
  check(cudaGetLastError(), "tree_sum");
}

}  // namespace weft::kernels
