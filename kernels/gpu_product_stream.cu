// How the streaming product is cut, and its launch.
#include "kernels/gpu_product_stream.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/gpu_launch.cuh"
#include "kernels/gpu_product_kernels.h"
#include "kernels/gpu_product_stream.cuh"

namespace weft::kernels {
namespace {

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }
size_t quotient_up(size_t n, size_t by) { return (n + by - 1) / by; }

bool chunked(const GpuProduct& a) { return a.invariant && a.n_chunks > 1; }

StreamMode mode_of(const GpuProduct& a) {
  return chunked(a) ? StreamMode::kChunked : StreamMode::kWhole;
}

bool on_16_bytes(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Rows a tile for which the busiest block has the least to do; a tile more costs a little. Tiles a
// block are a multiple of `step`.
void cut_rows(const GpuProduct& a, size_t n_blocks, size_t step, StreamCut& cut) {
  const size_t unit = a.epilogue == GpuProduct::kSwiglu ? 2 : 1;
  double best = 0;
  cut.tile_rows = cut.tiles = 64;  // for more rows: several blocks an SM, one after another
  for (size_t tiles = step; tiles <= 64; tiles += step) {
    const size_t rows = std::max<size_t>(8, round_up(quotient_up(a.n, n_blocks * tiles), unit));
    if (rows > 64) continue;
    const double cost =
        static_cast<double>(tiles * rows) * (1 + 0.002 * static_cast<double>(tiles));
    if (best > 0 && cost >= best) continue;
    best = cost;
    cut.tile_rows = rows;
    cut.tiles = tiles;
  }
}

size_t slot_bytes(const StreamCut& cut) {
  return cut.subtiles * kSubtileBytes *
         (cut.tiles_at_once * round_up(cut.tile_rows, 8) + cut.group_tokens);
}

// Shared memory but for the ring: what aligns it; what stands behind it (sums that blocks swap; the
// matrix units read 64 rows of a tile where fewer are there); staging and barriers.
size_t behind_bytes(const StreamCut& cut) {
  if (cut.parts == 2) return cut.tiles_at_once / 2 * cut.group_tokens * 64 * sizeof(float);
  return (64 - round_up(cut.tile_rows, 8)) * kSubtileBytes;
}
size_t static_bytes(const StreamCut& cut) {
  return std::min<size_t>(cut.group_tokens, 32) * kStagingPitch * 4 + kMaxSlots * 16 +
         kStreamTokens * 4 + 64;
}

PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &result),
        "cudaGetDriverEntryPointByVersion cuTensorMapEncodeTiled");
  if (result != cudaDriverEntryPointSuccess)
    check(cudaErrorSymbolNotFound, "the driver's cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// A [rows, width] matrix, from which the copy engine takes boxes of [box_rows, 64].
CUtensorMap tensor_map(In matrix, size_t rows, size_t width, size_t stride, size_t box_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  CUtensorMap map;
  const cuuint64_t sizes[] = {width, rows};
  const cuuint64_t strides[] = {stride * 2};  // bytes
  const cuuint32_t box[] = {kSubtile, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult status =
      encode(&map,
             matrix.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             2, const_cast<void*>(matrix.data), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    check(cudaErrorInvalidValue, "cuTensorMapEncodeTiled of [" + std::to_string(rows) + ", " +
                                     std::to_string(width) + "], status " +
                                     std::to_string(static_cast<int>(status)));
  return map;
}

// Room in the ring for the sums of all tiles at once.
uint32_t whole_pitch(const StreamCut& cut) {
  const size_t rows = quotient_up(cut.tiles_at_once, cut.parts) * cut.tile_rows;
  const uint32_t pitch = staging_pitch(static_cast<uint32_t>(rows));
  const bool fits = cut.group_tokens * pitch * sizeof(float) <= cut.n_slots * slot_bytes(cut);
  return fits ? pitch : 0;
}

StreamArgs stream_args(const GpuProduct& a, const StreamCut& cut, StreamMode mode) {
  StreamArgs s{};
  s.bias = a.epilogue == GpuProduct::kPartial ? nullptr : a.bias.data;
  s.bias_type = a.bias.dtype;
  s.residual = a.residual.data;
  s.residual_type = a.residual.dtype;
  s.y = a.y.data;
  s.y_type = a.y.dtype;
  s.epilogue = a.epilogue;
  s.y_stride = a.y_stride;
  s.tokens = static_cast<uint32_t>(a.tokens);
  s.n = static_cast<uint32_t>(a.n);
  s.k = static_cast<uint32_t>(a.k);
  s.n_chunks = mode == StreamMode::kChunked ? static_cast<uint32_t>(a.n_chunks) : 1;
  s.chunk = s.k / s.n_chunks;
  s.tile_rows = static_cast<uint32_t>(cut.tile_rows);
  s.tile_bytes = static_cast<uint32_t>(round_up(cut.tile_rows, 8) * kSubtileBytes);
  s.tiles = static_cast<uint32_t>(cut.tiles);
  s.subtiles = static_cast<uint32_t>(cut.subtiles);
  s.n_slots = static_cast<uint32_t>(cut.n_slots);
  s.slot_bytes = static_cast<uint32_t>(slot_bytes(cut));
  s.whole_pitch = whole_pitch(cut);
  s.norm_weight = a.defer.weight.data;
  s.scaled = a.defer.scaled.data;
  s.squares = a.defer.squares;
  s.x_squares = a.x_squares;
  s.x_parts = static_cast<uint32_t>(a.x_parts);
  s.eps = a.eps;
  s.w_policy = a.tokens <= cut.group_tokens ? hopper::kEvictFirst : hopper::kEvictNormal;
  return s;
}

}  // namespace

bool can_stream(const GpuProduct& a) {
  const bool typed =
      a.x.dtype == a.w.dtype && (a.x.dtype == DType::bf16 || a.x.dtype == DType::f16);
  const bool placed =
      a.k % 8 == 0 && a.x_stride % 8 == 0 && on_16_bytes(a.x.data) && on_16_bytes(a.w.data);
  const bool whole_steps = !chunked(a) || a.k / a.n_chunks % 16 == 0;
  return typed && placed && whole_steps;
}

StreamCut stream_cut(const GpuProduct& a, const StreamWish& wish, size_t n_sms) {
  const StreamMode mode = mode_of(a);
  const bool many_instances = a.x.dtype == DType::bf16;
  StreamCut cut;
  if (mode == StreamMode::kChunked)
    cut.group_tokens = a.tokens <= 8 ? 8 : 32;
  else
    while (cut.group_tokens < std::min<size_t>(a.tokens, 128)) cut.group_tokens *= 2;
  const bool few = cut.group_tokens <= 16;

  // Few tokens, or many rows: two blocks an SM, whose waits fall at different times. More tokens of
  // few rows: one, which reads x for as many rows as it can, and in pairs that halve k.
  const bool few_rows = a.n <= (cut.group_tokens == 32 ? 64 : 128) * n_sms;
  const bool pairs = few || (cut.group_tokens == 32 && !few_rows);
  const size_t blocks_per_sm = wish.blocks_per_sm > 0 ? wish.blocks_per_sm : pairs ? 2 : 1;
  const bool can_part = many_instances && mode == StreamMode::kWhole && !a.invariant &&
                        (cut.group_tokens == 32 || cut.group_tokens == 64) &&
                        a.tokens <= cut.group_tokens;
  cut.parts = wish.parts > 0 ? wish.parts : few_rows && a.k >= 2048 ? 2 : 1;
  if (!can_part) cut.parts = 1;
  cut_rows(a, n_sms * blocks_per_sm / cut.parts, cut.parts, cut);

  const size_t most_tiles = few || mode != StreamMode::kWhole          ? 1
                            : many_instances && cut.group_tokens <= 64 ? 4
                                                                       : 2;
  cut.tiles_at_once = wish.tiles_at_once > 0 ? wish.tiles_at_once : pairs ? 1 : 4;
  cut.tiles_at_once = std::min(cut.tiles_at_once, most_tiles);
  while (cut.tiles_at_once / 2 >= cut.tiles) cut.tiles_at_once /= 2;
  cut.tiles_at_once = std::max(cut.tiles_at_once, cut.parts);

  // A stage costs some 300 ns of waiting and issuing whatever its size.
  constexpr size_t kStageBytes = 14 * 1024;
  const size_t w_bytes = cut.tiles_at_once * round_up(cut.tile_rows, 8) * kSubtileBytes;
  cut.subtiles = wish.subtiles > 0 ? wish.subtiles
                                   : std::clamp<size_t>(quotient_up(kStageBytes, w_bytes), 2, 4);
  const size_t others = 1024 + behind_bytes(cut) + static_bytes(cut);
  const size_t shared =
      wish.shared_bytes > 0 ? wish.shared_bytes : (blocks_per_sm == 1 ? 220 : 106) * 1024;
  const size_t ring = shared > others ? shared - others : 0;
  cut.n_slots = std::clamp<size_t>(ring / slot_bytes(cut), 2, kMaxSlots);
  return cut;
}

size_t stream_norm_parts(const GpuProduct& a, const StreamCut& cut) {
  return quotient_up(quotient_up(a.n, cut.tile_rows), cut.tiles) * cut.parts;
}

void gpu_product_stream(const GpuProduct& a, const StreamCut& cut, CudaStream stream) {
  const StreamMode mode = mode_of(a);
  const auto find = a.x.dtype == DType::bf16 ? stream_kernel_bf16 : stream_kernel_f16;
  const void* kernel = find(cut.group_tokens, cut.tiles_at_once, cut.parts, mode);
  if (!kernel) throw std::logic_error("gpu_product_stream: no kernel for this cut");

  StreamArgs args = stream_args(a, cut, mode);
  CUtensorMap w = tensor_map(a.w, a.n, a.k, a.k, cut.tile_rows);
  CUtensorMap x = tensor_map(a.x, a.tokens, a.k, a.x_stride, cut.group_tokens);
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(quotient_up(a.tokens, cut.group_tokens)),
                    static_cast<unsigned>(stream_norm_parts(a, cut)));
  shape.block = dim3(stream_threads(cut.group_tokens));
  shape.shared_bytes = 1024 + args.n_slots * args.slot_bytes + behind_bytes(cut);
  shape.cluster = static_cast<unsigned>(cut.parts);
  shape.dependent = a.dependent_launch;
  void* addresses[] = {&w, &x, &args};
  launch("gpu_product_stream", kernel, shape, addresses, stream);
}

}  // namespace weft::kernels
