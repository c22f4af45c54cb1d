// Rotary position embedding, in place, on the halves of each head (x[i], x[i + head_dim / 2]).
// Su et al., "RoFormer", 2021.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

// The table is shared by all layers: for every position head_dim / 2 pairs (cos, sin), scaled
// already (YaRN). x' = x cos − y sin, y' = y cos + x sin, in float32, rounded once.
struct Rope {
  Out x;                               // [tokens, n_heads, head_dim], rows stride elements apart
  const float* table = nullptr;        // [context, head_dim / 2, 2]
  const int32_t* positions = nullptr;  // [tokens]
  size_t tokens = 0;
  size_t n_heads = 0;
  size_t head_dim = 0;
  size_t stride = 0;
};

void rope(const Rope& args, Stream& stream);

}  // namespace weft::kernels
