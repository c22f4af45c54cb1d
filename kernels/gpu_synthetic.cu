// A thread makes eight neighbours of a row at a time: three mixed words at most, one 16-byte store
// where they are 16-bit types. Rounding is the CPU's own code (runtime/base/dtype.h).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/gpu_synthetic.h"

namespace weft::kernels {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr int kThreads = 256;
constexpr size_t kRun = 8;

__device__ uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

__device__ float round_as(float x, float) { return x; }
__device__ float round_as(float x, __nv_bfloat16) {
  return __bfloat162float(__float2bfloat16_rn(x));
}
__device__ float round_as(float x, __half) { return __half2float(__float2half_rn(x)); }
__device__ void put(float x, float* to) { *to = x; }
__device__ void put(float x, __nv_bfloat16* to) { *to = __float2bfloat16_rn(x); }
__device__ void put(float x, __half* to) { *to = __float2half_rn(x); }

template <class Model, class T>
__global__ void make(GpuSynthetic a) {
  const size_t runs = (a.width + kRun - 1) / kRun;
  const size_t total = a.rows * runs;
  const size_t step = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += step) {
    const size_t row = i / runs, column = i % runs * kRun;
    const size_t first = (a.first_row + row) * a.columns + a.first_column + column;
    const size_t n = min(kRun, a.width - column);
    T* to = static_cast<T*>(a.to.data) + row * a.to_stride + column;
    alignas(16) T made[kRun];
    uint64_t group = ~uint64_t{0}, word = 0;
#pragma unroll
    for (size_t j = 0; j < kRun; ++j) {
      const uint64_t element = first + j;
      if (element / 4 != group) {
        group = element / 4;
        word = mix(a.key + (group + 1) * kGolden);
      }
      const auto k = static_cast<int16_t>(word >> (16 * (element % 4)));
      const float uniform = __fadd_rn(static_cast<float>(k), 0.5f);
      put(round_as(__fadd_rn(a.center, __fmul_rn(a.scale, uniform)), Model{}), made + j);
    }
    const bool whole = n == kRun && reinterpret_cast<uintptr_t>(to) % 16 == 0;
    if (whole) {
#pragma unroll
      for (size_t j = 0; j < sizeof made / 16; ++j)
        reinterpret_cast<uint4*>(to)[j] = reinterpret_cast<const uint4*>(made)[j];
      continue;
    }
#pragma unroll
    for (size_t j = 0; j < kRun; ++j)
      if (j < n) to[j] = made[j];
  }
}

// Calls f with the device type of a float dtype.
template <class F>
void with_device_type(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(__nv_bfloat16{});
  if (dtype == DType::f16) return f(__half{});
  f(float{});
}

}  // namespace

void gpu_synthetic(const GpuSynthetic& args, CudaStream stream) {
  const size_t runs = args.rows * ((args.width + kRun - 1) / kRun);
  if (runs == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min<size_t>((runs + kThreads - 1) / kThreads, 4096));
  with_device_type(args.model, [&](auto model) {
    with_device_type(args.to.dtype, [&](auto type) {
      make<decltype(model), decltype(type)><<<blocks, kThreads, 0, stream>>>(args);
    });
  });
  check(cudaGetLastError(), "gpu_synthetic");
}

}  // namespace weft::kernels
