// Attention without tensor cores, for float32 and for odd head dimensions: one warp a row and head.
// A lane scores one of 32 keys, then holds every 32nd element of the sum of values.
#include "kernels/gpu_attention_kernels.cuh"

namespace weft::kernels::gpu {
namespace {

constexpr int kWarps = 4;
constexpr int kEach = static_cast<int>(kMaxPlainHeadDim / 32);

template <class T>
struct PlainRow {
  const GpuAttention& a;
  const float* q;  // [head_dim] in shared memory
  size_t kv;
  const int32_t* table;
  int begin;  // visible positions
  int end;
  float c;
  float total[kEach];
  float part[kEach];
  float total_max = -INFINITY, total_sum = 0;
  float part_max = -INFINITY, part_sum = 0;  // the sum is a lane's own share

  __device__ const T* element(int position, bool value) const {
    const auto at = static_cast<size_t>(position);
    const std::byte* block = a.cache.base + table[at / kKvBlockTokens] * a.cache.block_stride;
    const auto g = static_cast<int64_t>(kv);
    block +=
        value ? a.cache.value_offset + g * a.cache.value_head_stride : g * a.cache.key_head_stride;
    return reinterpret_cast<const T*>(block) + at % kKvBlockTokens * a.head_dim;
  }

  __device__ float score(int position) const {
    if (position < begin || position >= end) return -INFINITY;
    const T* key = element(position, false);
    float sum = 0;
#pragma unroll 8
    for (size_t i = 0; i < a.head_dim; ++i) sum = __fmaf_rn(q[i], to_float(key[i]), sum);
    return __fmul_rn(sum, c);
  }

  // Positions [at, at + 32), of one span.
  __device__ void step(int at) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float s = score(at + lane);
    float most = s;
#pragma unroll
    for (int i = 16; i > 0; i /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    most = fmaxf(most, part_max);
    const float rescale = exp2f(part_max - most), p = exp2f(s - most);
    part_max = most;
    part_sum = __fmaf_rn(part_sum, rescale, p);
    for (float& value : part) value *= rescale;
    const int first = max(begin, at), last = min(end, at + 32);
    for (int position = first; position < last; ++position) {
      const float weight = __shfl_sync(~0u, p, position - at);
      const T* value = element(position, true);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const auto i = static_cast<size_t>(e * 32 + lane);
        if (i < a.head_dim) part[e] = __fmaf_rn(weight, to_float(value[i]), part[e]);
      }
    }
  }

  __device__ void merge() {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) part_sum += __shfl_xor_sync(~0u, part_sum, i);
    const float most = fmaxf(total_max, part_max);
    const float old = exp2f(total_max - most), now = exp2f(part_max - most);
    total_max = most;
    total_sum = __fmaf_rn(total_sum, old, __fmul_rn(part_sum, now));
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      total[e] = __fmaf_rn(total[e], old, __fmul_rn(part[e], now));
      part[e] = 0;
    }
    part_max = -INFINITY;
    part_sum = 0;
  }

  __device__ void run() {
    for (int e = 0; e < kEach; ++e) total[e] = part[e] = 0;
    constexpr int kSpan = static_cast<int>(kSoftmaxSpan);
    for (int span = begin / kSpan * kSpan; span < end; span += kSpan) {
      const int last = min(end, span + kSpan);
      for (int at = max(span, begin / 32 * 32); at < last; at += 32) step(at);
      merge();
    }
  }
};

template <class T>
__device__ void plain_row(const GpuAttention& a, size_t row, size_t head, float* q) {
  const int position = a.rows.positions[row];
  if (position < 0) return;
  const size_t lane = threadIdx.x % 32;
  const T* from = static_cast<const T*>(a.q.data) + row * a.q_stride + head * a.head_dim;
  for (size_t i = lane; i < a.head_dim; i += 32) q[i] = to_float(from[i]);
  __syncwarp();
  const auto sequence = static_cast<size_t>(a.rows.sequence[row]);
  PlainRow<T> work{a,
                   q,
                   head / (a.n_heads / a.n_kv_heads),
                   a.rows.block_table + sequence * a.rows.table_stride,
                   first_visible(position, a.window),
                   position + 1,
                   a.scale * kLog2E,
                   {},
                   {}};
  work.run();
  T* out = static_cast<T*>(a.out.data) + (row * a.n_heads + head) * a.head_dim;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const size_t i = static_cast<size_t>(e) * 32 + lane;
    if (i < a.head_dim) out[i] = from_float<T>(work.total[e] / work.total_sum);
  }
}

// Rows of all tiles lie behind the single ones: item i of tile t is n_single + t · kGpuTileRows +
// i.
template <class T>
__global__ void __launch_bounds__(kWarps * 32)
    plain_kernel(const __grid_constant__ GpuAttention a) {
  __shared__ float q[kWarps][kMaxPlainHeadDim];
  wait_for_kernel_before();
  const size_t item = blockIdx.x, head = blockIdx.y * size_t{kWarps} + threadIdx.x / 32;
  if (head >= a.n_heads) return;
  size_t row = item;
  if (item < a.n_single) {
    if (a.single != nullptr) row = static_cast<size_t>(a.single[item]);
  } else {
    const size_t i = item - a.n_single;
    const GpuTile tile = a.tiles[i / kGpuTileRows];
    if (i % kGpuTileRows >= static_cast<size_t>(tile.n_rows)) return;
    row = static_cast<size_t>(tile.first_row) + i % kGpuTileRows;
  }
  plain_row<T>(a, row, head, q[threadIdx.x / 32]);
}

}  // namespace

void attention_plain(const GpuAttention& a, CudaStream stream) {
  expect(a.head_dim <= kMaxPlainHeadDim, "gpu_attention: head_dim must be at most 512");
  const dim3 grid(static_cast<unsigned>(a.n_single + a.n_tiles * kGpuTileRows),
                  static_cast<unsigned>((a.n_heads + kWarps - 1) / kWarps));
  with_gpu_type(a.q.dtype, [&](auto type) {
    launch("gpu_attention plain", plain_kernel<decltype(type)>, grid, kWarps * 32, 0, stream,
           a.dependent_launch, a);
  });
}

}  // namespace weft::kernels::gpu
