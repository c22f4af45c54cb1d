// Arrays of tests in a GPU's memory, and the reason to skip where there is no GPU.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda_check.h"
#include "kernels/gpu_devices.h"

// First line of a GPU test.
#define WEFT_NEEDS_A_GPU()                                              \
  do {                                                                  \
    static const kernels::GpuQuery gpus = kernels::query_gpus();        \
    if (gpus.gpus.empty()) GTEST_SKIP() << "no GPU: " << gpus.why_none; \
  } while (false)

namespace weft::test {

// A copy of a host array.
template <class T>
class GpuArray {
 public:
  explicit GpuArray(const std::vector<T>& host) : n_(host.size()) {
    kernels::check(cudaMalloc(&data_, n_ * sizeof(T) + 1), "cudaMalloc");
    put(host);
  }
  GpuArray(size_t n, const T& value) : GpuArray(std::vector<T>(n, value)) {}
  ~GpuArray() { cudaFree(data_); }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }
  size_t size() const { return n_; }
  void put(const std::vector<T>& host) {
    kernels::check(cudaMemcpy(data_, host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice),
                   "to the GPU");
  }
  std::vector<T> get() const {
    std::vector<T> host(n_);
    kernels::check(cudaMemcpy(host.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost),
                   "from the GPU");
    return host;
  }

 private:
  void* data_ = nullptr;
  size_t n_;
};

}  // namespace weft::test
