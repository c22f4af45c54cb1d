// Copies in a stream's order, wherever the memory is.
#pragma once

#include <cstring>

#include "kernels/device.h"
#include "kernels/gpu_device.h"

namespace weft::kernels {

inline void copy(void* to, const void* from, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  if (stream.gpu() != nullptr) return copy_bytes(to, from, bytes, stream.gpu());
  std::memcpy(to, from, bytes);
}

}  // namespace weft::kernels
