// One more stage before others, over all numbers of layers at once: the inner loops of the bounds.
#pragma once

#include <cstddef>

namespace weft::planner {

// Times of a kind of stage by its layers, never falling, kNever from the first that has no room.
struct LayerRow {
  const double* ms = nullptr;  // [n_layers + 1]; [0] is not used
  size_t most = 0;             // layers that have room
  // Each layer adds this much, so that the best split is found by a sliding minimum; below 0: not
  // known to be so.
  double layer_ms = -1;
};

// Finds `most` and, up to rounding, whether the times are affine.
LayerRow layer_row(const double* ms, size_t n_layers);

// sum[l] = min(sum[l], stage of n layers + before[l - n]), over n >= 1 and l - n >= 1. The arrays
// are distinct.
void add_to_sums(const LayerRow& stage, size_t n_layers, const double* before, double* sum);
// most[l] = min(most[l], max(stage of n layers, before[l - n])). `before` never falls from its
// first finite value on.
void add_to_mosts(const LayerRow& stage, size_t n_layers, const double* before, double* most);

}  // namespace weft::planner
