// The streaming kernel for bf16.
#include "kernels/gpu_product_instances.cuh"

namespace weft::kernels {

const void* stream_kernel_bf16(size_t group_tokens, size_t tiles_at_once, size_t parts,
                               StreamMode mode) {
  return stream_kernel<__nv_bfloat16>(group_tokens, tiles_at_once, parts, mode);
}

}  // namespace weft::kernels
