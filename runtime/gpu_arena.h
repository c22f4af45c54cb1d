// All of a rank's GPU memory as one allocation, handed out in parts: a first pass without memory
// learns the size, a second one takes it.
#pragma once

#include <cstddef>

#include "kernels/gpu_device.h"
#include "kernels/tensor.h"

namespace weft::runtime {

class GpuArena {
 public:
  GpuArena() = default;  // counts only: parts are null
  explicit GpuArena(size_t bytes) : memory_(bytes) {}

  // At a multiple of 256 bytes.
  std::byte* take(size_t bytes) {
    std::byte* part = memory_.data() == nullptr ? nullptr : memory_.data() + used_;
    used_ += (bytes + 255) / 256 * 256;
    return part;
  }
  template <class T>
  T* take_of(size_t n) {
    return reinterpret_cast<T*>(take(n * sizeof(T)));
  }
  kernels::Out take_elements(size_t n, DType dtype) {
    return {take(n * dtype_bytes(dtype)), dtype};
  }

  size_t used() const { return used_; }
  size_t bytes() const { return memory_.bytes(); }
  std::byte* data() const { return memory_.data(); }

 private:
  kernels::GpuBuffer memory_;
  size_t used_ = 0;
};

}  // namespace weft::runtime
