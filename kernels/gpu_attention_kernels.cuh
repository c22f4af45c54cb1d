// The kernels behind gpu_attention().
#pragma once

#include "kernels/gpu_attention.h"
#include "kernels/gpu_attention_launch.cuh"

namespace weft::kernels::gpu {

inline constexpr float kLog2E = 1.44269504088896340736f;

// Rows that one launch of decode takes: their running counts stand in shared memory.
inline constexpr size_t kDecodeRows = 1024;

// head_dim 64, 96 or 128, bf16 or f16.
void attention_decode(const GpuAttention& args, CudaStream stream);   // single rows
void attention_prefill(const GpuAttention& args, CudaStream stream);  // tiles, by mma.sync
// head_dim 64 or 128, rows of q on 16 bytes; true where it took the tiles.
bool attention_prefill_wgmma(const GpuAttention& args, CudaStream stream);
// Any head_dim up to kMaxPlainHeadDim, any of f32, f16, bf16: single rows and tiles.
inline constexpr size_t kMaxPlainHeadDim = 512;
void attention_plain(const GpuAttention& args, CudaStream stream);

// First position that the row at `position` sees.
__device__ inline int first_visible(int position, size_t window) {
  const auto seen = static_cast<size_t>(position) + 1;
  return window > 0 && seen > window ? static_cast<int>(seen - window) : 0;
}

// Decode's workspace: what the merge needs to know, then parts.
struct DecodeHeader {
  int32_t prefix[kDecodeRows + 1];  // parts of rows before
};
inline constexpr size_t kDecodeHeaderBytes = (sizeof(DecodeHeader) + 255) / 256 * 256;
// A head's part: its values, the largest score and the sum, in whole 16 bytes.
template <int D>
inline constexpr int kPartFloats = D + 4;

}  // namespace weft::kernels::gpu
