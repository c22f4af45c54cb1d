// Descriptions of the paged cache for Hopper's tensor unit.
#include "kernels/gpu_attention_maps.h"

#include <cuda_runtime.h>

namespace weft::kernels::gpu {
namespace {

// The driver's own function, asked for by name: weft does not link with the driver.
using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(function);
}

bool map_plane(Encode encode, const GpuAttention& g, int tokens, std::byte* plane,
               int64_t head_stride, CUtensorMap& map) {
  const auto type =
      g.q.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  constexpr cuuint64_t kMostBlocks = 1 << 24;
  const cuuint64_t size[] = {g.head_dim, kKvBlockTokens, g.n_kv_heads, kMostBlocks};
  const cuuint64_t stride[] = {g.head_dim * 2, static_cast<cuuint64_t>(head_stride),
                               static_cast<cuuint64_t>(g.cache.block_stride)};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(tokens), 1, 1}, step[] = {1, 1, 1, 1};
  return encode(&map, type, 4, plane, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool map_planes(const GpuAttention& g, int tokens, CUtensorMap& keys, CUtensorMap& values) {
  static const Encode encode = find_encode();
  return encode != nullptr &&
         map_plane(encode, g, tokens, g.cache.base, g.cache.key_head_stride, keys) &&
         map_plane(encode, g, tokens, g.cache.base + g.cache.value_offset,
                   g.cache.value_head_stride, values);
}

}  // namespace weft::kernels::gpu
