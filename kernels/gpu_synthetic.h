// Synthetic weights made where they are used: the GPU's twin of runtime/synthetic.h's formula, bit
// for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu_device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

// to[r, c] = element (first_row + r) * columns + first_column + c of the tensor, rounded to
// `model`, the dtype of the checkpoint that it stands for, and then to that of `to`.
struct GpuSynthetic {
  uint64_t key = 0;  // of the tensor: runtime::synthetic_key
  float center = 0;
  float scale = 0;
  DType model = DType::bf16;
  size_t columns = 0;  // of the tensor
  size_t first_row = 0;
  size_t first_column = 0;
  size_t rows = 0;
  size_t width = 0;      // columns that are made
  Out to;                // [rows, width], rows to_stride elements apart
  size_t to_stride = 0;  // elements
};

void gpu_synthetic(const GpuSynthetic& args, CudaStream stream);

}  // namespace weft::kernels
