// Embedding rows on the GPU, a token a block.
#include "kernels/gpu_embedding.h"

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/hopper.cuh"

namespace weft::kernels {
namespace {

constexpr unsigned kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) embedding(const GpuEmbedding a) {
  hopper::let_next_start();
  hopper::wait_for_previous();
  // An id below the shard wraps to a huge row, so one comparison finds both sides.
  const size_t row = static_cast<size_t>(int64_t{__ldcg(a.ids + blockIdx.x)}) - a.shard_begin;
  const bool here = row < a.shard_rows;
  const T* from = static_cast<const T*>(a.table.data) + row * a.hidden;
  const size_t to = size_t{blockIdx.x} * a.hidden;
  for (size_t i = threadIdx.x; i < a.hidden; i += kThreads)
    store_float(a.y.data, a.y.dtype, to + i, here ? widen(from[i]) + 0.0f : 0.0f);
}

}  // namespace

void gpu_embedding(const GpuEmbedding& a, CudaStream stream) {
  if (a.tokens == 0 || a.hidden == 0) return;
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(a.tokens));
  shape.block = dim3(kThreads);
  shape.dependent = a.dependent_launch;
  with_gpu_type(a.table.dtype, [&](auto type) {
    launch("gpu_embedding", embedding<decltype(type)>, shape, stream, a);
  });
}

}  // namespace weft::kernels
