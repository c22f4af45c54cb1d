// The sum over ranks of what all ranks sent to one GPU, with the bits of parallel/tree_sum.h.
#pragma once

#include <cstddef>

#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

inline constexpr int kMostTreeRanks = 64;

struct GpuTreeSum {
  In parts;                    // [ranks, n], parts `stride` elements apart; f32, bf16 or f16
  const void* mine = nullptr;  // [n], stands for part `rank`; null: all are in `parts`
  int rank = 0;
  int ranks = 1;  // at most kMostTreeRanks
  size_t stride = 0;
  void* out = nullptr;  // [n], of the dtype of parts, rounded once; may be one of the parts or mine
  size_t n = 0;
};

void gpu_tree_sum(const GpuTreeSum& args, CUstream_st* stream);

}  // namespace weft::kernels
