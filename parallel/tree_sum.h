// The sum over ranks that gives the same bits wherever it is computed: one fixed binary tree over
// rank numbers, in float, rounded once.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/dtype.h"

namespace weft::parallel {

// out[i] = the sum of parts[r][i] over all r; parts: [ranks] pointers to [n], out: [n], all of
// dtype (f32, f16, bf16). The left subtree holds the largest power of two of ranks that is smaller
// than all, so that a power of two of ranks is summed as by partners rank^1, rank^2, rank^4, ….
// out may be one of the parts.
void tree_sum(std::span<const void* const> parts, void* out, size_t n, DType dtype);

}  // namespace weft::parallel
