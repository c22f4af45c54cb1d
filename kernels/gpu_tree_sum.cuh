// The sum over ranks in tree_sum's order (parallel/tree_sum.h), kept in registers: ranks are added
// in turn, and as in a binary counter two sums of equal many ranks become one, the earlier on the
// left.
#pragma once

#include <bit>

namespace weft::kernels {

template <int kMostRanks>
struct TreeSum {
  static constexpr int kLevels = std::bit_width(static_cast<unsigned>(kMostRanks));
  float level[kLevels];  // a sum of 2^l ranks where bit l of the number so far is set

  __device__ void add(int rank, float x) {
#pragma unroll
    for (int l = 0; l < kLevels; ++l) {
      if ((rank >> l & 1) == 0) {
        level[l] = x;
        return;
      }
      x = __fadd_rn(level[l], x);
    }
  }

  __device__ float total(int ranks) const {
    float sum = 0;
    bool begun = false;
#pragma unroll
    for (int l = 0; l < kLevels; ++l) {
      if ((ranks >> l & 1) == 0) continue;
      sum = begun ? __fadd_rn(level[l], sum) : level[l];
      begun = true;
    }
    return sum;
  }
};

}  // namespace weft::kernels
