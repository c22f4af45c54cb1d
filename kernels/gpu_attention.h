// Causal attention over the paged cache on a GPU: decode rows and prefill runs of one batch.
#pragma once

#include <span>

#include "kernels/attention.h"
#include "kernels/gpu_kv.h"

namespace weft::kernels {

// Rows of one sequence at successive positions, for one block of the prefill kernels.
struct GpuTile {
  int32_t first_row = 0;
  int32_t n_rows = 0;  // at most kGpuTileRows; 0 = padding
};
inline constexpr size_t kGpuTileRows = 128;
inline constexpr size_t kGpuShortestRun = 8;  // shorter runs of rows are single rows

// The semantics of kernels/attention.h. q, out and the cache have one dtype. Tensor cores for bf16
// and f16 with head_dim 64, 96 or 128, where probabilities are rounded to the dtype before they
// meet the values; a plain kernel in float32 for the rest.
//
// Rows are computed once each, either as single rows (their context is spread over the whole GPU)
// or in tiles; gpu_attention_rows() sorts them. Numbers of rows and tiles are known to the host;
// positions and tables are read from device memory, so a captured launch serves later steps.
//
// Softmax restarts at absolute multiples of kSoftmaxSpan and spans are merged in order. With
// `invariant`, single rows and tiles use the same instructions in the same order: a row's bits
// depend on its sequence alone. Without it, tiles of head_dim 64 and 128 use wgmma.
struct GpuAttention {
  In q;           // [tokens, n_heads, head_dim], rows q_stride elements apart; 16-byte aligned
  KvLayer cache;  // base in device memory, 16-byte aligned as its strides are
  GpuRows rows;
  Out out;                          // [tokens, n_heads, head_dim], dense
  const int32_t* single = nullptr;  // [n_single] row numbers, on the device; null = 0, 1, 2, …
  size_t n_single = 0;
  const GpuTile* tiles = nullptr;  // [n_tiles] on the device, longest context last
  size_t n_tiles = 0;
  size_t max_context = 0;  // no single row sees more positions; bounds the grid, not the result
  size_t n_heads = 0;
  size_t n_kv_heads = 0;  // divides n_heads
  size_t head_dim = 0;
  size_t q_stride = 0;
  size_t window = 0;  // 0 = none
  float scale = 0;
  // Where it is given the kernel does what gpu_qkv_post() does: k and v stand behind q, all as
  // their product left them, and the new keys and values join the cache on the way. Only where
  // gpu_attention_rotates() and every row is the newest of a sequence of its own.
  const float* rope = nullptr;  // [context, head_dim / 2, 2]
  // Where it is given, tiles' q is as its product left it (gpu_qkv_post() with leaves_q) and is
  // rotated on the way. Only where gpu_attention_rotates_tiles().
  const float* tile_rope = nullptr;  // as rope
  bool invariant = false;
  // Programmatic: starts while the kernel before it ends, and reads positions, tables and keys and
  // values that are not among the last kGpuShortestRun of a row before that. They must have been
  // written by copies, or by kernels that do not let their followers start early. With `rope` all
  // keys and values but the newest are read so.
  bool dependent_launch = false;
  // gpu_attention_workspace_bytes(…), 256-byte aligned; used within the call only.
  std::byte* workspace = nullptr;
};

// For up to n_single rows whose contexts add up to `positions`.
size_t gpu_attention_workspace_bytes(size_t n_single, size_t positions, size_t n_heads,
                                     size_t head_dim);

// Whether `rope` may be given: depends on types, strides and shapes alone.
bool gpu_attention_rotates(const GpuAttention& args);

// Whether `tile_rope` may be given: depends on types, strides, shapes, `invariant` and on whether
// all rows are in tiles.
bool gpu_attention_rotates_tiles(const GpuAttention& args);

// Throws std::invalid_argument on shapes and types it does not take.
void gpu_attention(const GpuAttention& args, CudaStream stream);

// Sorts a batch's rows, host memory throughout: runs of at least kGpuShortestRun rows of one
// sequence at successive positions become tiles, longest context last, other rows are single;
// rows of padding (position −1) are neither. Room for gpu_tiles_at_most(tokens) tiles and `tokens`
// rows.
struct GpuRowCounts {
  size_t n_single = 0;
  size_t n_tiles = 0;
};
inline constexpr size_t gpu_tiles_at_most(size_t tokens) { return tokens / kGpuShortestRun + 1; }
GpuRowCounts gpu_attention_rows(const PagedRows& rows, std::span<int32_t> single,
                                std::span<GpuTile> tiles);

}  // namespace weft::kernels
