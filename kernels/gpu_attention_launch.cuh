// What the launchers of attention, of the cache's writes and of sampling share: element types of
// the device, and a launch that may start while the kernel before it ends.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>

#include "kernels/cuda_check.h"
#include "kernels/gpu_kv.h"

namespace weft::kernels::gpu {

using Bf16 = __nv_bfloat16;
using F16 = __half;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) { return __bfloat162float(x); }
__device__ inline float to_float(F16 x) { return __half2float(x); }

template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 from_float<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline F16 from_float<F16>(float x) {
  return __float2half_rn(x);
}

// Calls f(T{}) with the device's type of a float dtype.
template <class F>
void with_gpu_type(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(Bf16{});
  if (dtype == DType::f16) return f(F16{});
  if (dtype == DType::f32) return f(float{});
  throw std::invalid_argument("the GPU computes with f32, f16 and bf16 alone");
}

inline void expect(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// In every thread of a kernel, before it touches what other kernels write.
__device__ inline void wait_for_kernel_before() {
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
}

template <class... P, class... A>
void launch(const char* name, void (*kernel)(P...), dim3 grid, unsigned threads,
            size_t shared_bytes, CudaStream stream, bool dependent, const A&... args) {
  // Kernels that want another split of an SM's memory wait for the SM to be empty.
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        name);
  if (shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          std::string(name) + ": shared memory");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, P(args)...), name);
}

inline unsigned multiprocessors() {
  int device = 0, n = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device),
        "cudaDevAttrMultiProcessorCount");
  return static_cast<unsigned>(n);
}

}  // namespace weft::kernels::gpu
