// Grid-stride loops; the copy keeps four 16-byte loads a thread in flight, enough blocks for every
// multiprocessor.
#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/gpu_float.cuh"
#include "kernels/gpu_links.h"

namespace weft::kernels {
namespace {

constexpr int kThreads = 512;
constexpr unsigned kMostBlocks = 1024;
constexpr int kLoads = 4;

unsigned blocks_for(size_t n) {
  const size_t blocks = (n + kThreads - 1) / kThreads;
  return static_cast<unsigned>(std::clamp<size_t>(blocks, 1, kMostBlocks));
}

// pattern_value (link_pattern.h).
__device__ uint32_t value(size_t i, int rank, uint32_t mask) {
  uint32_t v = static_cast<uint32_t>(i ^ (i >> 32)) * 0x9e3779b1u;
  v += static_cast<uint32_t>(rank) * 0x85ebca77u;
  v ^= v >> 15;
  v *= 0x2c1b3c6du;
  v ^= v >> 12;
  v *= 0x297a2d39u;
  v ^= v >> 15;
  return v & mask;
}

template <class T>
__device__ T element(const LinkPattern& a, size_t i) {
  uint32_t sum = 0;
  for (int rank = a.first_rank; rank < a.end_rank; ++rank) sum += value(a.first + i, rank, a.mask);
  return narrow<T>(static_cast<float>(sum));
}

template <class T>
__global__ void __launch_bounds__(kThreads) fill(LinkPattern a) {
  T* to = static_cast<T*>(a.data.data);
  const size_t step = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < a.n; i += step)
    to[i] = element<T>(a, i);
}

template <class T>
__global__ void __launch_bounds__(kThreads) compare(LinkPattern a, unsigned long long* n_wrong) {
  const T* got = static_cast<const T*>(a.data.data);
  const size_t step = size_t{gridDim.x} * kThreads;
  unsigned long long wrong = 0;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < a.n; i += step) {
    const T want = element<T>(a, i), is = got[i];
    const auto* p = reinterpret_cast<const unsigned char*>(&want);
    const auto* q = reinterpret_cast<const unsigned char*>(&is);
    bool same = true;
#pragma unroll
    for (size_t byte = 0; byte < sizeof(T); ++byte) same = same && p[byte] == q[byte];
    if (!same) ++wrong;
  }
  if (wrong > 0) atomicAdd(n_wrong, wrong);
}

__global__ void __launch_bounds__(kThreads)
    copy(char* to, const char* from, size_t n_words, size_t n_rest) {
  const size_t step = size_t{gridDim.x} * kThreads;
  size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n_rest) to[n_words * sizeof(uint4) + i] = from[n_words * sizeof(uint4) + i];
  auto* out = reinterpret_cast<uint4*>(to);
  const auto* in = reinterpret_cast<const uint4*>(from);
  for (; i + (kLoads - 1) * step < n_words; i += kLoads * step) {
    uint4 words[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) words[j] = in[i + j * step];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) out[i + j * step] = words[j];
  }
  for (; i < n_words; i += step) out[i] = in[i];
}

}  // namespace

void gpu_fill_pattern(const LinkPattern& args, CudaStream stream) {
  with_gpu_type(args.data.dtype, [&](auto type) {
    fill<decltype(type)><<<blocks_for(args.n), kThreads, 0, stream>>>(args);
  });
  check(cudaGetLastError(), "gpu_fill_pattern");
}

void gpu_count_wrong(const LinkPattern& args, uint64_t* n_wrong, CudaStream stream) {
  with_gpu_type(args.data.dtype, [&](auto type) {
    compare<decltype(type)><<<blocks_for(args.n), kThreads, 0, stream>>>(
        args, reinterpret_cast<unsigned long long*>(n_wrong));
  });
  check(cudaGetLastError(), "gpu_count_wrong");
}

void gpu_copy_by_kernel(void* to, const void* from, size_t bytes, CudaStream stream) {
  if (bytes == 0) return;
  const size_t n_words = bytes / sizeof(uint4);
  copy<<<blocks_for(n_words), kThreads, 0, stream>>>(
      static_cast<char*>(to), static_cast<const char*>(from), n_words, bytes % sizeof(uint4));
  check(cudaGetLastError(), "gpu_copy_by_kernel");
}

}  // namespace weft::kernels
