// residual += partial (+ bias) on the GPU, rounded once, and the RMSNorm that follows it.
#pragma once

#include <cstddef>

#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

using CudaStream = CUstream_st*;

struct GpuResidualAdd {
  const float* partial = nullptr;  // [tokens, hidden], the sum over ranks
  In bias;                         // [hidden] or null; added to partial first
  Out residual;                    // [tokens, hidden]
  In norm_weight;                  // [hidden] or null
  Out normed;                      // [tokens, hidden] where norm_weight is given: RMSNorm(residual)
  float eps = 1e-6f;
  size_t tokens = 0;
  size_t hidden = 0;
  bool dependent_launch = false;
};

void gpu_residual_add(const GpuResidualAdd& args, CudaStream stream);

}  // namespace weft::kernels
