// Prefill attention by the instructions of decode: a block of 8 warps takes a tile of up to 128
// rows of one head, a warp 16 rows; key blocks pass through a ring of shared memory. In invariant
// mode, and for what wgmma does not take.
#include "kernels/gpu_attention_kernels.cuh"
#include "kernels/gpu_attention_mma.cuh"

namespace weft::kernels::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kTiles = 2;  // of 8 rows, a warp
constexpr int kWarpRows = 8 * kTiles;
static_assert(kWarps * kWarpRows == kGpuTileRows);
constexpr int kBlock = static_cast<int>(kKvBlockTokens);
constexpr int kRing = 3;

template <class T>
struct PrefillArgs {
  const T* q;
  KvLayer cache;
  GpuRows rows;
  const GpuTile* tiles;  // [n_tiles]
  int n_tiles;
  int n_heads;
  int group;
  size_t q_stride;
  size_t window;
  float c;  // scale · log2 e
  T* out;   // [tokens, n_heads, D]
};

template <int D>
inline constexpr int kPlaneBytes = kBlock* kSharedRow<D>;

// Keys and values of one block and head; zeros from `n_keys` on.
template <class T, int D>
__device__ void copy_block(const PrefillArgs<T>& a, const int32_t* table, int block, int kv,
                           int n_keys, uint32_t shared) {
  const std::byte* from = a.cache.base + table[block] * a.cache.block_stride;
  const std::byte* k = from + kv * a.cache.key_head_stride;
  const std::byte* v = from + a.cache.value_offset + kv * a.cache.value_head_stride;
  constexpr int kPieces = D / 8;
#pragma unroll
  for (int piece = static_cast<int>(threadIdx.x); piece < kBlock * kPieces; piece += kWarps * 32) {
    const int row = piece / kPieces;
    const bool there = row < n_keys;
    const uint32_t to = shared + row * kSharedRow<D> + piece % kPieces * 16;
    copy_16_or_zero(to, k + (there ? piece * 16 : 0), there);
    copy_16_or_zero(to + kPlaneBytes<D>, v + (there ? piece * 16 : 0), there);
  }
}

// A warp's 16 rows: what spans gave so far, and the span in progress.
template <class T, int D>
struct WarpRows {
  Queries<T, D, kTiles> q;
  Partial<T, D, kTiles> part;
  float total[D / 16][kTiles][4] = {};
  float max[kTiles][2];
  float sum[kTiles][2] = {};
  int span = -1;

  __device__ WarpRows() {
    for (auto& tile : max)
      for (float& value : tile) value = -INFINITY;
    part.clear();
  }

  __device__ void enter(int new_span, float c) {
    if (new_span == span) return;
    if (span >= 0) merge(c);
    span = new_span;
  }

  __device__ void merge(float c) {
    part.finish();
#pragma unroll
    for (int nt = 0; nt < kTiles; ++nt)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const MergeWeights w = merge_weights(max[nt][j], part.max[nt][j], c);
        max[nt][j] = fmaxf(max[nt][j], part.max[nt][j]);
        sum[nt][j] = merged(sum[nt][j], part.sum[nt][j], w);
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
#pragma unroll
          for (int e = j; e < 4; e += 2)
            total[d][nt][e] = merged(total[d][nt][e], part.o[d][nt][e], w);
      }
    part.clear();
  }
};

template <class T, int D>
__global__ void __launch_bounds__(kWarps * 32, 1)
    prefill_kernel(const __grid_constant__ PrefillArgs<T> a) {
  extern __shared__ __align__(128) std::byte shared[];
  wait_for_kernel_before();
  const GpuTile tile = a.tiles[a.n_tiles - 1 - static_cast<int>(blockIdx.y)];
  if (tile.n_rows == 0) return;
  const int head = static_cast<int>(blockIdx.x), kv = head / a.group;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_row = static_cast<int>(threadIdx.x / 32) * kWarpRows;
  const int first = a.rows.positions[tile.first_row];
  const int32_t* table = a.rows.block_table +
                         static_cast<size_t>(a.rows.sequence[tile.first_row]) * a.rows.table_stride;

  WarpRows<T, D> rows;
#pragma unroll
  for (int nt = 0; nt < kTiles; ++nt) {
    const int r = warp_row + nt * 8 + lane / 4;
    const T* from =
        a.q + static_cast<size_t>(tile.first_row + r) * a.q_stride + static_cast<size_t>(head) * D;
    rows.q.load(nt, r < tile.n_rows ? from : nullptr);
  }
  // Positions that the block, this warp and each column see.
  const int key_end = first + tile.n_rows;
  const int n_own = min(kWarpRows, tile.n_rows - warp_row);  // rows of the warp; may be negative
  const int own = first + warp_row;
  const int own_begin = first_visible(own, a.window), own_end = n_own > 0 ? own + n_own : 0;
  const int common_begin = first_visible(own + kWarpRows - 1, a.window), common_end = own + 1;

  const int block_begin = first_visible(first, a.window) / kBlock;
  const int block_end = (key_end + kBlock - 1) / kBlock;
  const uint32_t ring = shared_address(shared);
  const auto issue = [&](int block) {
    if (block < block_end)
      copy_block<T, D>(a, table, block, kv, key_end - block * kBlock,
                       ring + (block - block_begin) % kRing * 2 * kPlaneBytes<D>);
    commit_copies();
  };
  for (int i = 0; i < kRing - 1; ++i) issue(block_begin + i);
  for (int block = block_begin; block < block_end; ++block) {
    wait_for_copies<kRing - 2>();
    __syncthreads();
    issue(block + kRing - 1);
    const uint32_t k = ring + (block - block_begin) % kRing * 2 * kPlaneBytes<D>;
#pragma unroll 1
    for (int step = 0; step < kBlock; step += kStepKeys) {
      const int at = block * kBlock + step;
      if (at >= own_end || at + kStepKeys <= own_begin) continue;
      rows.enter(at / static_cast<int>(kSoftmaxSpan), a.c);
      Visible<kTiles> visible;
#pragma unroll
      for (int nt = 0; nt < kTiles; ++nt)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int position = own + nt * 8 + lane % 4 * 2 + j;
          visible.begin[nt][j] = first_visible(position, a.window) - at;
          visible.end[nt][j] = position + 1 - at;
        }
      const uint32_t k_step = k + step * kSharedRow<D>, v_step = k_step + kPlaneBytes<D>;
      if (at < common_begin || at + kStepKeys > common_end)
        rows.part.template add<true, PaddedRows<D>>(rows.q, k_step, v_step, visible, a.c);
      else
        rows.part.template add<false, PaddedRows<D>>(rows.q, k_step, v_step, visible, a.c);
    }
  }
  if (n_own <= 0) return;
  rows.merge(a.c);
#pragma unroll
  for (int nt = 0; nt < kTiles; ++nt)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int r = warp_row + nt * 8 + lane % 4 * 2 + j;
      if (r >= tile.n_rows) continue;
      const float inverse = __frcp_rn(rows.sum[nt][j]);
      T* out = a.out + (static_cast<size_t>(tile.first_row + r) * static_cast<size_t>(a.n_heads) +
                        static_cast<size_t>(head)) *
                           D;
#pragma unroll
      for (int d = 0; d < D / 16; ++d)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          out[d * 16 + e * 8 + lane / 4] =
              from_float<T>(__fmul_rn(rows.total[d][nt][e * 2 + j], inverse));
    }
}

template <class T, int D>
void prefill(const GpuAttention& g, CudaStream stream) {
  PrefillArgs<T> a{};
  a.q = g.q.as<T>();
  a.cache = g.cache;
  a.rows = g.rows;
  a.tiles = g.tiles;
  a.n_tiles = static_cast<int>(g.n_tiles);
  a.n_heads = static_cast<int>(g.n_heads);
  a.group = static_cast<int>(g.n_heads / g.n_kv_heads);
  a.q_stride = g.q_stride;
  a.window = g.window;
  a.c = g.scale * kLog2E;
  a.out = g.out.as<T>();
  const dim3 grid(static_cast<unsigned>(g.n_heads), static_cast<unsigned>(g.n_tiles));
  launch("gpu_attention prefill", prefill_kernel<T, D>, grid, kWarps * 32,
         kRing * 2 * kPlaneBytes<D>, stream, g.dependent_launch, a);
}

}  // namespace

void attention_prefill(const GpuAttention& g, CudaStream stream) {
  with_gpu_type(g.q.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, float>) {
      if (g.head_dim == 64) return prefill<T, 64>(g, stream);
      if (g.head_dim == 96) return prefill<T, 96>(g, stream);
      if (g.head_dim == 128) return prefill<T, 128>(g, stream);
    }
    throw std::invalid_argument("gpu_attention: no tensor-core kernel for this shape");
  });
}

}  // namespace weft::kernels::gpu
