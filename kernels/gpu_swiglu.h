// out = silu(gate) · up on the GPU, for products that cuBLASLt has written.
#pragma once

#include <cstddef>

#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

using CudaStream = CUstream_st*;

struct GpuSwiGlu {
  In gate_up;  // [tokens, ffn, 2]: gate, up by turns, dense
  Out out;     // [tokens, ffn], rows out_stride elements apart
  size_t tokens = 0;
  size_t ffn = 0;
  size_t out_stride = 0;
  bool dependent_launch = false;
};

void gpu_swiglu(const GpuSwiGlu& args, CudaStream stream);

}  // namespace weft::kernels
