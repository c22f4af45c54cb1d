// SwiGLU on the GPU, in float from loads to the one rounding of the store.
#include "kernels/gpu_swiglu.h"

#include <algorithm>

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/hopper.cuh"

namespace weft::kernels {
namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kEach = 2;  // eights of pairs a thread has on their way

template <class T>
__device__ void one(const GpuSwiGlu& a, size_t token, size_t i) {
  const T* pair = static_cast<const T*>(a.gate_up.data) + 2 * (token * a.ffn + i);
  store_float(a.out.data, a.out.dtype, token * a.out_stride + i,
              silu_times(widen(__ldcg(pair)), widen(__ldcg(pair + 1))));
}

// Eight pairs of a two-byte type, which two wide loads bring.
template <class T>
__device__ uint4 eight(const uint4 (&pairs)[2]) {
  float low[8], high[8];
  widen_eight<T>(pairs[0], low);
  widen_eight<T>(pairs[1], high);
  uint4 words;
  T* out = reinterpret_cast<T*>(&words);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    out[j] = narrow<T>(silu_times(low[2 * j], low[2 * j + 1]));
    out[4 + j] = narrow<T>(silu_times(high[2 * j], high[2 * j + 1]));
  }
  return words;
}

// Row blockIdx.y, its eights of pairs from blockIdx.x on.
template <class T>
__global__ void __launch_bounds__(kThreads) swiglu_wide(const GpuSwiGlu a) {
  hopper::let_next_start();
  hopper::wait_for_previous();
  const size_t token = blockIdx.y, n = a.ffn / 8;
  const uint4* from =
      reinterpret_cast<const uint4*>(static_cast<const T*>(a.gate_up.data) + 2 * token * a.ffn);
  uint4* to = reinterpret_cast<uint4*>(static_cast<T*>(a.out.data) + token * a.out_stride);
  const size_t first = size_t{blockIdx.x} * kThreads * kEach + threadIdx.x;
  uint4 pairs[kEach][2];
#pragma unroll
  for (size_t j = 0; j < kEach; ++j) {
    const size_t i = first + j * kThreads;
    if (i >= n) continue;
    pairs[j][0] = __ldcs(from + 2 * i);
    pairs[j][1] = __ldcs(from + 2 * i + 1);
  }
#pragma unroll
  for (size_t j = 0; j < kEach; ++j)
    if (first + j * kThreads < n) to[first + j * kThreads] = eight<T>(pairs[j]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) swiglu(const GpuSwiGlu a) {
  hopper::let_next_start();
  hopper::wait_for_previous();
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < a.ffn;
       i += size_t{gridDim.x} * kThreads)
    one<T>(a, blockIdx.y, i);
}

}  // namespace

void gpu_swiglu(const GpuSwiGlu& args, CudaStream stream) {
  if (args.tokens == 0 || args.ffn == 0) return;
  const auto places =
      reinterpret_cast<uintptr_t>(args.gate_up.data) | reinterpret_cast<uintptr_t>(args.out.data);
  const bool wide = args.gate_up.dtype == args.out.dtype && args.out.dtype != DType::f32 &&
                    places % 16 == 0 && args.ffn % 8 == 0 && args.out_stride % 8 == 0;
  const size_t per_block = kThreads * (wide ? 8 * kEach : 1);
  const auto launch_rows = [&](auto kernel, const GpuSwiGlu& a) {
    LaunchShape shape;
    shape.grid = dim3(static_cast<unsigned>((a.ffn + per_block - 1) / per_block),
                      static_cast<unsigned>(a.tokens));
    shape.block = dim3(kThreads);
    shape.dependent = a.dependent_launch;
    launch("gpu_swiglu", kernel, shape, stream, a);
  };
  constexpr size_t kMostRows = 65535;  // of a grid
  GpuSwiGlu a = args;
  for (size_t first = 0; first < args.tokens; first += kMostRows) {
    a.tokens = std::min(kMostRows, args.tokens - first);
    a.gate_up = {static_cast<const std::byte*>(args.gate_up.data) +
                     2 * first * args.ffn * dtype_bytes(args.gate_up.dtype),
                 args.gate_up.dtype};
    a.out = {static_cast<std::byte*>(args.out.data) +
                 first * args.out_stride * dtype_bytes(args.out.dtype),
             args.out.dtype};
    with_gpu_type(a.gate_up.dtype, [&](auto type) {
      using T = decltype(type);
      if constexpr (sizeof(T) == 2)
        if (wide) return launch_rows(swiglu_wide<T>, a);
      launch_rows(swiglu<T>, a);
    });
  }
}

}  // namespace weft::kernels
