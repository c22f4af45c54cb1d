// Tensors of tests in a GPU's memory, and the reason to skip where there is no GPU.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda_check.h"
#include "kernels/gpu_devices.h"
#include "tests/kernels/tensors.h"

// First line of a GPU test.
#define WEFT_NEEDS_GPU()                                                \
  do {                                                                  \
    static const kernels::GpuQuery gpus = kernels::query_gpus();        \
    if (gpus.gpus.empty()) GTEST_SKIP() << "no GPU: " << gpus.why_none; \
  } while (false)

namespace weft::test {

// Bytes of device memory, freed with it.
class GpuBytes {
 public:
  explicit GpuBytes(size_t bytes) : bytes_(bytes) {
    kernels::check(cudaMalloc(&data_, bytes > 0 ? bytes : 1), "cudaMalloc");
  }
  ~GpuBytes() { cudaFree(data_); }
  GpuBytes(GpuBytes&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  GpuBytes& operator=(GpuBytes&&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// A copy of a host tensor.
class GpuTensor {
 public:
  explicit GpuTensor(const Tensor& host) : host_(host), memory_(host.bytes().size()) { upload(); }
  // Filled with NaN.
  GpuTensor(DType dtype, size_t n) : GpuTensor(Tensor(dtype, n)) {}
  static GpuTensor random(DType dtype, size_t n, uint32_t seed, float deviation = 1) {
    return GpuTensor(Tensor::random(dtype, n, seed, deviation));
  }

  kernels::In in(size_t from = 0) const {
    return {static_cast<std::byte*>(memory_.data()) + from * dtype_bytes(host_.dtype()),
            host_.dtype()};
  }
  kernels::Out out(size_t from = 0) {
    return {static_cast<std::byte*>(memory_.data()) + from * dtype_bytes(host_.dtype()),
            host_.dtype()};
  }
  // What was uploaded.
  const Tensor& uploaded() const { return host_; }
  // What is on the GPU now; waits for it.
  Tensor fetch() const {
    Tensor now(host_.dtype(), host_.size());
    kernels::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    kernels::check(
        cudaMemcpy(now.out().data, memory_.data(), memory_.bytes(), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    return now;
  }
  void upload() {
    kernels::check(
        cudaMemcpy(memory_.data(), host_.bytes().data(), memory_.bytes(), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  }

 private:
  Tensor host_;
  GpuBytes memory_;
};

}  // namespace weft::test
