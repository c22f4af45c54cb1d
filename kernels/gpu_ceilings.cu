// Reading: every thread keeps eight 16-byte loads in flight over one stretch after the other.
#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/gpu_ceilings.h"

namespace weft::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;
constexpr int kPasses = 8;

__device__ uint4 load_once(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

__global__ void __launch_bounds__(kThreads) read_all(const uint4* from, size_t n, uint32_t* never) {
  const size_t stretch = size_t{kThreads} * kLoads;
  uint32_t sum = 0;
  for (size_t base = blockIdx.x * stretch; base + stretch <= n; base += gridDim.x * stretch) {
    uint4 value[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) value[i] = load_once(from + base + i * kThreads + threadIdx.x);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum ^= value[i].x ^ value[i].y ^ value[i].z ^ value[i].w;
  }
  if (sum == 0x9e3779b9u && never != nullptr) *never = sum;
}

}  // namespace

double gpu_read_rate(const void* memory, size_t bytes, CudaStream stream) {
  int device = 0, n_multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  const size_t n = bytes / sizeof(uint4);
  GpuEvent start(true), end(true);
  double best = 0;
  for (int pass = 0; pass <= kPasses; ++pass) {  // the first warms up
    start.record(stream);
    read_all<<<static_cast<unsigned>(n_multiprocessors) * 4, kThreads, 0, stream>>>(
        static_cast<const uint4*>(memory), n, nullptr);
    check(cudaGetLastError(), "gpu_read_rate");
    end.record(stream);
    end.synchronise();
    const double rate = static_cast<double>(bytes) / (end.ms_since(start) * 1e-3);
    if (pass > 0) best = std::max(best, rate);
  }
  return best;
}

}  // namespace weft::kernels
