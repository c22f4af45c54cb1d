// out = silu(gate) · up. Shazeer, "GLU Variants Improve Transformer", 2020.
#pragma once

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

struct SwiGlu {
  In gate_up;  // [tokens, 2, ffn]: gate, then up
  Out out;     // [tokens, ffn]
  size_t tokens = 0;
  size_t ffn = 0;
};

template <class Acc = float>
void swiglu(const SwiGlu& args, Stream& stream);

}  // namespace weft::kernels
