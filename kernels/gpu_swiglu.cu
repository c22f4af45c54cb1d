// SwiGLU on the GPU, in float from loads to the one rounding of the store.
#include "kernels/gpu_swiglu.h"

#include <algorithm>

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/hopper.cuh"

namespace weft::kernels {
namespace {

constexpr unsigned kThreads = 256;

template <class T>
__device__ void one(const GpuSwiGlu& a, size_t token, size_t i) {
  const T* pair = static_cast<const T*>(a.gate_up.data) + 2 * (token * a.ffn + i);
  store_float(a.out.data, a.out.dtype, token * a.out_stride + i,
              silu_times(widen(__ldcg(pair)), widen(__ldcg(pair + 1))));
}

// Eight pairs of a two-byte type: two wide loads, one wide store.
template <class T>
__device__ void eight(const GpuSwiGlu& a, size_t token, size_t i) {
  const uint4* from = reinterpret_cast<const uint4*>(static_cast<const T*>(a.gate_up.data) +
                                                     2 * (token * a.ffn + i));
  float low[8], high[8];
  widen_eight<T>(__ldcg(from), low);
  widen_eight<T>(__ldcg(from + 1), high);
  uint4 words;
  T* out = reinterpret_cast<T*>(&words);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    out[j] = narrow<T>(silu_times(low[2 * j], low[2 * j + 1]));
    out[4 + j] = narrow<T>(silu_times(high[2 * j], high[2 * j + 1]));
  }
  *reinterpret_cast<uint4*>(static_cast<T*>(a.out.data) + token * a.out_stride + i) = words;
}

template <class T>
__global__ void __launch_bounds__(kThreads) swiglu(const GpuSwiGlu a, const bool wide) {
  hopper::let_next_start();
  hopper::wait_for_previous();
  const size_t per_row = wide ? a.ffn / 8 : a.ffn;
  const size_t items = a.tokens * per_row;
  for (size_t item = size_t{blockIdx.x} * kThreads + threadIdx.x; item < items;
       item += size_t{gridDim.x} * kThreads) {
    if constexpr (sizeof(T) == 2)
      if (wide) {
        eight<T>(a, item / per_row, item % per_row * 8);
        continue;
      }
    one<T>(a, item / per_row, item % per_row);
  }
}

}  // namespace

void gpu_swiglu(const GpuSwiGlu& a, CudaStream stream) {
  if (a.tokens == 0 || a.ffn == 0) return;
  const auto places =
      reinterpret_cast<uintptr_t>(a.gate_up.data) | reinterpret_cast<uintptr_t>(a.out.data);
  const bool wide = a.gate_up.dtype == a.out.dtype && a.out.dtype != DType::f32 &&
                    places % 16 == 0 && a.ffn % 8 == 0 && a.out_stride % 8 == 0;
  const size_t items = a.tokens * (wide ? a.ffn / 8 : a.ffn);
  LaunchShape shape;
  shape.grid =
      dim3(static_cast<unsigned>(std::min<size_t>((items + kThreads - 1) / kThreads, 8192)));
  shape.block = dim3(kThreads);
  shape.dependent = a.dependent_launch;
  with_gpu_type(a.gate_up.dtype, [&](auto type) {
    launch("gpu_swiglu", swiglu<decltype(type)>, shape, stream, a, wide);
  });
}

}  // namespace weft::kernels
