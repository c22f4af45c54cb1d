// Decode attention for every type and head_dim of the tensor cores.
#include "kernels/gpu_attention_decode.cuh"

namespace weft::kernels::gpu {
namespace {

// As many stages as fit beside 4 warps.
template <int D>
inline constexpr int kStages = D == 64   ? 5
                               : D == 96 ? 4
                                         : 3;

template <class T, int D>
void decode(const GpuAttention& g, CudaStream stream) {
  const bool narrow = g.n_heads / g.n_kv_heads <= 8;
  for (size_t first = 0; first < g.n_single; first += kDecodeRows) {
    const size_t n = std::min(kDecodeRows, g.n_single - first);
    const auto args = decode_args<T>(g, first, n, narrow ? 8 : 16);
    if (narrow)
      launch_decode<T, D, 1, 4, kStages<D>>(g, args, stream);
    else
      launch_decode<T, D, 2, 4, kStages<D>>(g, args, stream);
  }
}

}  // namespace

void attention_decode(const GpuAttention& g, CudaStream stream) {
  with_gpu_type(g.q.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, float>) {
      if (g.head_dim == 64) return decode<T, 64>(g, stream);
      if (g.head_dim == 96) return decode<T, 96>(g, stream);
      if (g.head_dim == 128) return decode<T, 128>(g, stream);
    }
    throw std::invalid_argument("gpu_attention: no tensor-core kernel for this shape");
  });
}

}  // namespace weft::kernels::gpu
