// RMSNorm of one row by one block of kNormThreads threads. Thread t takes the eights of elements t,
// t + 128, …, whatever the row's alignment is, so that the sum has one order.
#pragma once

#include "kernels/gpu_float.cuh"
#include "kernels/tensor.h"

namespace weft::kernels {

constexpr int kNormHeld = 8;  // eights a thread keeps in registers

// The weight's eights of this thread, fetched at construction where they can be in wide loads: no
// kernel writes them, so that may be before the kernel before has ended.
template <class T>
struct NormWeight {
  In weight;
  bool wide;
  uint4 held[kNormHeld];

  __device__ NormWeight(In from, size_t width)
      : weight(from),
        wide(sizeof(T) == 2 && from.dtype == gpu_dtype<T>() && width % 8 == 0 &&
             reinterpret_cast<uintptr_t>(from.data) % 16 == 0) {
#pragma unroll
    for (int j = 0; j < kNormHeld; ++j) {
      const size_t i = threadIdx.x + j * kNormThreads;
      if (wide && i < width / 8) held[j] = static_cast<const uint4*>(from.data)[i];
    }
  }
};

template <class T>
__device__ inline void load_eight(const T* row, size_t i, size_t width, float (&to)[8]) {
#pragma unroll
  for (int e = 0; e < 8; ++e) to[e] = 8 * i + e < width ? widen(__ldcg(row + 8 * i + e)) : 0.0f;
}

// The same where rows of x and y start on 16 bytes and all stays in registers.
template <class T>
__device__ inline void norm_row_wide(const T* x, const NormWeight<T>& weight, T* y, size_t width,
                                     float eps, float* warp_sums) {
  const auto sync = [] { __syncthreads(); };
  uint4 held[kNormHeld];
  float sum = 0, values[8];
#pragma unroll
  for (int j = 0; j < kNormHeld; ++j) {
    const size_t i = threadIdx.x + j * kNormThreads;
    if (i < width / 8) held[j] = __ldcg(reinterpret_cast<const uint4*>(x) + i);
  }
#pragma unroll
  for (int j = 0; j < kNormHeld; ++j) {
    if (threadIdx.x + j * kNormThreads >= width / 8) continue;
    widen_eight<T>(held[j], values);
    add_squares(values, sum);
  }
  const float inverse = inverse_rms(sum, width, eps, warp_sums, sync);
#pragma unroll
  for (int j = 0; j < kNormHeld; ++j) {
    const size_t i = threadIdx.x + j * kNormThreads;
    if (i < width / 8)
      reinterpret_cast<uint4*>(y)[i] = normalised_eight<T>(held[j], inverse, weight.held[j]);
  }
}

// y[y_from + i] = x[i] / rms · weight[i]; y may be x.
template <class T>
__device__ inline void norm_row(const T* x, const NormWeight<T>& weight, Out y, size_t y_from,
                                size_t width, float eps, float* warp_sums) {
  if constexpr (sizeof(T) == 2) {
    T* to = static_cast<T*>(y.data) + y_from;
    const auto places = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(to);
    if (weight.wide && y.dtype == gpu_dtype<T>() && places % 16 == 0 &&
        width <= 8 * kNormHeld * kNormThreads)
      return norm_row_wide(x, weight, to, width, eps, warp_sums);
  }
  float sum = 0, values[8];
  for (size_t i = threadIdx.x; 8 * i < width; i += kNormThreads) {
    load_eight(x, i, width, values);
    add_squares(values, sum);
  }
  const float inverse = inverse_rms(sum, width, eps, warp_sums, [] { __syncthreads(); });
  for (size_t i = threadIdx.x; 8 * i < width; i += kNormThreads) {
    load_eight(x, i, width, values);
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (8 * i + e < width)
        store_float(y.data, y.dtype, y_from + 8 * i + e,
                    normalised<T>(values[e], inverse,
                                  load_float(weight.weight.data, weight.weight.dtype, 8 * i + e)));
  }
}

}  // namespace weft::kernels
