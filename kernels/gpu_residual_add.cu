// The residual addition on the GPU, a row a block, with the next operation's RMSNorm behind it.
#include "kernels/gpu_residual_add.h"

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/gpu_norm_row.cuh"
#include "kernels/hopper.cuh"

namespace weft::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kNormThreads) residual_add(const GpuResidualAdd a) {
  __shared__ float warp_sums[4];
  hopper::let_next_start();
  const bool normed = a.norm_weight.data != nullptr;
  NormWeight<T> weight(a.norm_weight, normed ? a.hidden : 0);
  hopper::wait_for_previous();
  const size_t from = blockIdx.x * a.hidden;
  T* residual = static_cast<T*>(a.residual.data) + from;
  // Eight neighbours a thread, as norm_row reads them: each thread sees its own stores.
  for (size_t i = threadIdx.x; 8 * i < a.hidden; i += kNormThreads)
    for (size_t e = 8 * i; e < 8 * i + 8 && e < a.hidden; ++e) {
      float sum = __ldcg(a.partial + from + e);
      if (a.bias.data != nullptr) sum += load_float(a.bias.data, a.bias.dtype, e);
      __stcg(residual + e, narrow<T>(widen(__ldcg(residual + e)) + sum));
    }
  if (normed) norm_row(residual, weight, a.normed, from, a.hidden, a.eps, warp_sums);
}

}  // namespace

void gpu_residual_add(const GpuResidualAdd& a, CudaStream stream) {
  if (a.tokens == 0 || a.hidden == 0) return;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(a.tokens));
  shape.block = dim3(kNormThreads);
  shape.dependent = a.dependent_launch;
  with_gpu_type(a.residual.dtype, [&](auto type) {
    launch("gpu_residual_add", residual_add<decltype(type)>, shape, stream, a);
  });
}

}  // namespace weft::kernels
