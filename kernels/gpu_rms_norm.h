// RMSNorm on the GPU: y = x / sqrt(mean(x²) + eps) · weight, a row a block.
#pragma once

#include <cstddef>

#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

using CudaStream = CUstream_st*;

// As kernels/rms_norm.h with one group a row: x / rms is rounded to the dtype of x before the
// weight. The sum of squares has one order for every batch: 128 threads take eights of elements in
// turn, then a fixed tree. x and y may be the same memory.
struct GpuRmsNorm {
  In x;       // [tokens, width], rows x_stride elements apart
  In weight;  // [width]
  Out y;      // [tokens, width], rows y_stride elements apart
  size_t tokens = 0;
  size_t width = 0;
  size_t x_stride = 0;
  size_t y_stride = 0;
  float eps = 1e-6f;
  bool dependent_launch = false;
};

void gpu_rms_norm(const GpuRmsNorm& args, CudaStream stream);

}  // namespace weft::kernels
