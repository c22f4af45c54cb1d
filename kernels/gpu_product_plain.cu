// The product of any dtypes, strides and chunks: float32 multiply-adds, each output in the order of
// k. Right for every batch and layout alike, and slow: for float32 models and odd shapes.
#include <cstdint>

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/gpu_product_stream.h"
#include "kernels/hopper.cuh"

namespace weft::kernels {
namespace {

constexpr uint32_t kTile = 16;   // tokens and rows of a block
constexpr uint32_t kDepth = 32;  // elements of k in shared memory

struct Tiles {
  float x[kTile][kDepth + 1];
  float w[kTile][kDepth + 1];
};

// One chunk's sum for this thread's output; zeros stand past the edges.
__device__ float chunk_sum(const GpuProduct& a, Tiles& tiles, size_t token, size_t row,
                           size_t begin, size_t end) {
  float sum = 0;
  for (size_t from = begin; from < end; from += kDepth) {
    __syncthreads();
    for (uint32_t i = threadIdx.y * kTile + threadIdx.x; i < kTile * kDepth; i += kTile * kTile) {
      const size_t t = token + i / kDepth, r = row + i / kDepth, k = from + i % kDepth;
      tiles.x[i / kDepth][i % kDepth] =
          t < a.tokens && k < end ? load_float(a.x.data, a.x.dtype, t * a.x_stride + k) : 0;
      tiles.w[i / kDepth][i % kDepth] =
          r < a.n && k < end ? load_float(a.w.data, a.w.dtype, r * a.k + k) : 0;
    }
    __syncthreads();
    float part = 0;  // sums of sums lose less than one long sum
    for (uint32_t i = 0; i < kDepth; ++i)
      part = fmaf(tiles.x[threadIdx.y][i], tiles.w[threadIdx.x][i], part);
    sum += part;
  }
  return sum;
}

__device__ float tree_sum(const GpuProduct& a, Tiles& tiles, size_t token, size_t row) {
  const size_t chunk = a.k / a.n_chunks;
  float level[3] = {}, sum = 0;
  for (size_t c = 0; c < a.n_chunks; ++c) {
    sum = chunk_sum(a, tiles, token, row, c * chunk, (c + 1) * chunk);
#pragma unroll
    for (int l = 0; l < 3; ++l) {
      if ((c >> l & 1) == 0) {
        level[l] = sum;
        break;
      }
      sum = level[l] + sum;
    }
  }
  return sum;
}

__global__ void plain_product(const GpuProduct a) {
  __shared__ Tiles tiles;
  hopper::let_next_start();
  hopper::wait_for_previous();
  const size_t first_row = size_t{blockIdx.x} * kTile, first_token = size_t{blockIdx.y} * kTile;
  const size_t row = first_row + threadIdx.x, token = first_token + threadIdx.y;
  float value = tree_sum(a, tiles, first_token, first_row);
  const bool exists = row < a.n && token < a.tokens;
  if (exists && a.bias.data != nullptr) value += load_float(a.bias.data, a.bias.dtype, row);
  const size_t from = token * a.y_stride;
  if (a.epilogue == GpuProduct::kSwiglu) {
    const float up = __shfl_xor_sync(0xffffffff, value, 1);
    if (exists && row % 2 == 0)
      store_float(a.y.data, a.y.dtype, from + row / 2, silu_times(value, up));
    return;
  }
  if (!exists) return;
  if (a.epilogue == GpuProduct::kAddResidual)
    value = load_float(a.residual.data, a.residual.dtype, from + row) + value;
  store_float(a.y.data, a.y.dtype, from + row, value);
}

}  // namespace

void gpu_product_plain(const GpuProduct& args, CudaStream stream) {
  GpuProduct a = args;
  if (!a.invariant) a.n_chunks = 1;
  if (a.epilogue == GpuProduct::kPartial) a.bias = {};
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>((a.n + kTile - 1) / kTile),
                    static_cast<unsigned>((a.tokens + kTile - 1) / kTile));
  shape.block = dim3(kTile, kTile);
  shape.dependent = a.dependent_launch;
  launch("gpu_product_plain", plain_product, shape, stream, a);
}

}  // namespace weft::kernels
