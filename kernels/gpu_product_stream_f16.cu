// The streaming kernel for f16.
#include "kernels/gpu_product_instances.cuh"

namespace weft::kernels {

const void* stream_kernel_f16(size_t group_tokens, size_t tiles_at_once, size_t parts,
                              StreamMode mode) {
  return stream_kernel<__half>(group_tokens, tiles_at_once, parts, mode);
}

}  // namespace weft::kernels
