// The residual addition on the GPU, a row a block, with the next operation's RMSNorm behind it.
#include "kernels/gpu_residual_add.h"

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/gpu_norm_row.cuh"
#include "kernels/hopper.cuh"

namespace weft::kernels {
namespace {

constexpr int kAtOnce = 4;  // eights of a thread whose loads are on their way together

__device__ inline float with_bias(float sum, const In& bias, size_t e) {
  return bias.data == nullptr ? sum : sum + load_float(bias.data, bias.dtype, e);
}

template <class T>
__device__ bool rows_are_wide(const GpuResidualAdd& a) {
  const auto places =
      reinterpret_cast<uintptr_t>(a.partial) | reinterpret_cast<uintptr_t>(a.residual.data);
  return sizeof(T) == 2 && a.hidden % 8 == 0 && places % 16 == 0;
}

template <class T>  // of two bytes
__device__ inline uint4 add_eight(const uint4& residual, const float4& low, const float4& high,
                                  const In& bias, size_t first) {
  const float partial[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  float values[8];
  widen_eight<T>(residual, values);
  uint4 words;
  T* out = reinterpret_cast<T*>(&words);
#pragma unroll
  for (int e = 0; e < 8; ++e)
    out[e] = narrow<T>(values[e] + with_bias(partial[e], bias, first + e));
  return words;
}

// Thread t has the eights t, t + 128, …, as in norm_row: each thread sees its own stores.
template <class T>
__device__ void add_wide(const GpuResidualAdd& a, size_t from, T* residual) {
  const auto* partial = reinterpret_cast<const float4*>(a.partial + from);
  auto* row = reinterpret_cast<uint4*>(residual);
  const size_t n = a.hidden / 8;
  for (size_t first = threadIdx.x; first < n; first += kAtOnce * kNormThreads) {
    float4 low[kAtOnce], high[kAtOnce];
    uint4 held[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const size_t i = first + j * kNormThreads;
      if (i >= n) continue;
      low[j] = __ldcg(partial + 2 * i);
      high[j] = __ldcg(partial + 2 * i + 1);
      held[j] = __ldcg(row + i);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const size_t i = first + j * kNormThreads;
      if (i < n) __stcg(row + i, add_eight<T>(held[j], low[j], high[j], a.bias, 8 * i));
    }
  }
}

template <class T>
__device__ void add_plain(const GpuResidualAdd& a, size_t from, T* residual) {
  for (size_t i = threadIdx.x; 8 * i < a.hidden; i += kNormThreads)
    for (size_t e = 8 * i; e < 8 * i + 8 && e < a.hidden; ++e) {
      const float sum = with_bias(__ldcg(a.partial + from + e), a.bias, e);
      __stcg(residual + e, narrow<T>(widen(__ldcg(residual + e)) + sum));
    }
}

template <class T>
__global__ void __launch_bounds__(kNormThreads) residual_add(const GpuResidualAdd a) {
  __shared__ float warp_sums[4];
  hopper::let_next_start();
  const bool normed = a.norm_weight.data != nullptr;
  NormWeight<T> weight(a.norm_weight, normed ? a.hidden : 0);
  hopper::wait_for_previous();
  const size_t from = blockIdx.x * a.hidden;
  T* residual = static_cast<T*>(a.residual.data) + from;
  bool wide = false;
  if constexpr (sizeof(T) == 2) {
    wide = rows_are_wide<T>(a);
    if (wide) add_wide(a, from, residual);
  }
  if (!wide) add_plain(a, from, residual);
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
