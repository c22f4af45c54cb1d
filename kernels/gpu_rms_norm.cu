// RMSNorm on the GPU.
#include "kernels/gpu_rms_norm.h"

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/gpu_norm_row.cuh"
#include "kernels/hopper.cuh"

namespace weft::kernels {
namespace {

template <class T>
__global__ void __launch_bounds__(kNormThreads) rms_norm(const GpuRmsNorm a) {
  __shared__ float warp_sums[4];
  hopper::let_next_start();
  NormWeight<T> weight(a.weight, a.width);
  hopper::wait_for_previous();
  norm_row(static_cast<const T*>(a.x.data) + blockIdx.x * a.x_stride, weight, a.y,
           blockIdx.x * a.y_stride, a.width, a.eps, warp_sums);
}

}  // namespace

void gpu_rms_norm(const GpuRmsNorm& a, CudaStream stream) {
  if (a.tokens == 0 || a.width == 0) return;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(a.tokens));
  shape.block = dim3(kNormThreads);
  shape.dependent = a.dependent_launch;
  with_gpu_type(a.x.dtype, [&](auto type) {
    launch("gpu_rms_norm", rms_norm<decltype(type)>, shape, stream, a);
  });
}

}  // namespace weft::kernels
