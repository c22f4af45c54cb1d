// What the GPU can do at most, measured: the rate at which kernels read its memory, and that of its
// matrix units on random numbers.
#pragma once

#include <cstddef>

#include "kernels/gpu_device.h"

namespace weft::kernels {

// Bytes a second of reading `bytes` of GPU memory, the best of several passes. The memory's
// contents stay; a few gigabytes are enough, and much more than the L2 cache is needed.
double gpu_read_rate(const void* memory, size_t bytes, CudaStream stream);

}  // namespace weft::kernels
