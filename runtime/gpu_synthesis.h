// Makes one load of a synthetic source where it is wanted, on the GPU.
#pragma once

#include "kernels/device.h"
#include "planner/model_spec.h"
#include "runtime/weight_layout.h"

namespace weft::runtime {

// `info` is the tensor's; `part` the columns of a split tensor, or all of them.
void make_on_gpu(uint64_t seed, const TensorInfo& info, const TensorLoad& load,
                 const ColumnPart& part, DType dtype, kernels::Stream& stream);

// Values like weights, of variance 1, in n elements of `dtype`: what caches and activations hold in
// measurements.
void make_noise_on_gpu(uint64_t seed, void* to, size_t n, DType dtype, kernels::Stream& stream);

}  // namespace weft::runtime
