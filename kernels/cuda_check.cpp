// CUDA's status codes as exceptions.
#include "kernels/cuda_check.h"

#include "runtime/base/error.h"

namespace weft::kernels {

void check(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  throw run_error("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace weft::kernels
