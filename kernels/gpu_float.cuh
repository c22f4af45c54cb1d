// Device code's view of storage types: loads and stores that convert, the reductions that have one
// order for every batch, and SiLU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "runtime/base/dtype.h"

namespace weft::kernels {

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(__half x) { return __half2float(x); }

template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half narrow<__half>(float x) {
  return __float2half_rn(x);
}

template <class T>
__host__ __device__ constexpr DType gpu_dtype() {
  return DType::f32;
}
template <>
__host__ __device__ constexpr DType gpu_dtype<__nv_bfloat16>() {
  return DType::bf16;
}
template <>
__host__ __device__ constexpr DType gpu_dtype<__half>() {
  return DType::f16;
}

// Calls f(T{}) with device code's type for a float dtype.
template <class F>
void with_gpu_type(DType dtype, F&& f) {
  if (dtype == DType::bf16)
    f(__nv_bfloat16{});
  else if (dtype == DType::f16)
    f(__half{});
  else
    f(float{});
}

// Element i of a tensor whose type is known at run time only.
__device__ inline float load_float(const void* data, DType dtype, size_t i) {
  if (dtype == DType::bf16) return widen(static_cast<const __nv_bfloat16*>(data)[i]);
  if (dtype == DType::f16) return widen(static_cast<const __half*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
__device__ inline void store_float(void* data, DType dtype, size_t i, float x) {
  if (dtype == DType::bf16)
    static_cast<__nv_bfloat16*>(data)[i] = narrow<__nv_bfloat16>(x);
  else if (dtype == DType::f16)
    static_cast<__half*>(data)[i] = narrow<__half>(x);
  else
    static_cast<float*>(data)[i] = x;
}

__device__ inline float silu_times(float gate, float up) {
  return __fmul_rn(__fdiv_rn(gate, 1.0f + expf(-gate)), up);
}

template <class T>  // of two bytes
__device__ inline void widen_eight(const uint4& words, float (&to)[8]) {
  const T* values = reinterpret_cast<const T*>(&words);
#pragma unroll
  for (int j = 0; j < 8; ++j) to[j] = widen(values[j]);
}

inline constexpr int kNormThreads = 128;

// 1 / sqrt(mean of squares + eps) from each thread's own sum, the same bits in every thread. Called
// by kNormThreads threads; `sync` is their barrier.
template <class Sync>
__device__ inline float inverse_rms(float sum, size_t width, float eps, float* warp_sums,  // [4]
                                    Sync sync) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
  const int thread = static_cast<int>(threadIdx.x) % kNormThreads;
  sync();  // the sums of the row before have been read
  if (thread % 32 == 0) warp_sums[thread / 32] = sum;
  sync();
  const float total = (warp_sums[0] + warp_sums[1]) + (warp_sums[2] + warp_sums[3]);
  return __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(total, static_cast<float>(width)) + eps));
}

__device__ inline void add_squares(const float (&x)[8], float& sum) {
#pragma unroll
  for (int j = 0; j < 8; ++j) sum = fmaf(x[j], x[j], sum);
}

// x / rms, rounded to the dtype of x, times the weight.
template <class T>
__device__ inline float normalised(float x, float inverse, float weight) {
  return __fmul_rn(widen(narrow<T>(__fmul_rn(x, inverse))), weight);
}

template <class T>  // of two bytes
__device__ inline uint4 normalised_eight(const uint4& x, float inverse, const uint4& weight) {
  float values[8], weights[8];
  widen_eight<T>(x, values);
  widen_eight<T>(weight, weights);
  uint4 words;
  T* out = reinterpret_cast<T*>(&words);
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = narrow<T>(normalised<T>(values[j], inverse, weights[j]));
  return words;
}

}  // namespace weft::kernels
