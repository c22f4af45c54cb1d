// Sums over GPUs in a build without a CUDA toolkit: nothing can call them, since no GPU memory can
// be made.
#include "kernels/gpu_peer_reduce.h"
#include "kernels/gpu_tree_sum.h"
#include "runtime/base/error.h"

namespace weft::kernels {

void gpu_peer_sum(const GpuPeerSum&, CUstream_st*) {
  throw run_error("weft was built without CUDA");
}
void gpu_peer_residual(const GpuPeerResidual&, CUstream_st*) {
  throw run_error("weft was built without CUDA");
}
void gpu_tree_sum(const GpuTreeSum&, CUstream_st*) {
  throw run_error("weft was built without CUDA");
}

}  // namespace weft::kernels
