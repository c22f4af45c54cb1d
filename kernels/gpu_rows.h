// Small moves of rows on the GPU: those that are sampled, side by side; new entries of block
// tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu_device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

// y[i] = x[row[i]]; rows of zeros where row[i] is −1.
struct GpuGatherRows {
  In x;                          // [*, width]
  const int32_t* row = nullptr;  // [rows], device memory
  Out y;                         // [rows, width], of x's dtype
  size_t rows = 0;
  size_t width = 0;
};
void gpu_gather_rows(const GpuGatherRows& args, CudaStream stream);

// table[place] = value, for n pairs in device memory.
struct GpuTableEntry {
  int32_t place = 0;
  int32_t value = 0;
};
void gpu_write_table(int32_t* table, const GpuTableEntry* entries, size_t n, CudaStream stream);

}  // namespace weft::kernels
