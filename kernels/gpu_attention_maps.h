// Descriptions of the paged cache for Hopper's tensor unit.
#pragma once

#include <cuda.h>

#include "kernels/gpu_attention.h"

namespace weft::kernels::gpu {

// A layer's keys and its values as [block, kv_head, token, head_dim], in boxes of 64 elements of
// `tokens` rows with the 128-byte swizzle. False where the driver takes none of it; bf16 and f16,
// head_dim a multiple of 64, everything at multiples of 16 bytes.
bool map_planes(const GpuAttention& args, int tokens, CUtensorMap& keys, CUtensorMap& values);

}  // namespace weft::kernels::gpu
