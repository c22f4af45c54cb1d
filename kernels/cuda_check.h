// CUDA's status codes as exceptions, and its current device as a scope.
#pragma once

#include <cuda_runtime.h>

#include <string>

namespace weft::kernels {

// Throws Error "cudaMemGetInfo on GPU 3: out of memory (cudaErrorMemoryAllocation)". Defined in a
// file of the host compiler's: nvcc does not take fmt.
void check(cudaError_t status, const std::string& what);

// Makes a GPU current for this thread and restores the one before.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    check(cudaSetDevice(device), "cudaSetDevice " + std::to_string(device));
  }
  ~CurrentDevice() { cudaSetDevice(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

}  // namespace weft::kernels
