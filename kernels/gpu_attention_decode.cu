// Decode attention for every type and head_dim of the tensor cores.
#include "kernels/gpu_attention_decode.cuh"

namespace weft::kernels::gpu {
namespace {

// Rings fill shared memory beside 4 warps. Boxes hold 64 elements, so head_dim 96 is left to lanes.
template <class T, int D, int NT>
void decode_rows(const GpuAttention& g, const DecodeArgs<T>& args, CudaStream stream) {
  CUtensorMap keys{}, values{};
  if constexpr (D % 64 == 0)
    if (map_planes(g, kStepKeys, keys, values))
      return launch_decode<BoxRing, T, D, NT, 4, 384 / D>(g, args, keys, values, stream);
  launch_decode<LaneRing, T, D, NT, 4, 384 / D - (D == 64)>(g, args, keys, values, stream);
}

template <class T, int D>
void decode(const GpuAttention& g, CudaStream stream) {
  const bool narrow = g.n_heads / g.n_kv_heads <= 8;
  for (size_t first = 0; first < g.n_single; first += kDecodeRows) {
    const size_t n = std::min(kDecodeRows, g.n_single - first);
    const auto args = decode_args<T>(g, first, n, narrow ? 8 : 16);
    if (narrow)
      decode_rows<T, D, 1>(g, args, stream);
    else
      decode_rows<T, D, 2>(g, args, stream);
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
