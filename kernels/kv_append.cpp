// Cache writes on the CPU.
#include "kernels/kv_append.h"

#include "kernels/cpu_kernels.h"
#include "kernels/kv_address.h"

namespace weft::kernels {

void kv_append(const KvAppend& a, Stream& stream) {
  if (a.rows.tokens == 0) return;
  const size_t grain = 1 + kElementwiseWork / (2 * a.n_kv_heads * a.head_dim);
  const size_t k_bytes = dtype_bytes(a.k.dtype), v_bytes = dtype_bytes(a.v.dtype);
  stream.pool().split(a.rows.tokens, grain, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const auto position = static_cast<size_t>(a.rows.positions[t]);
      std::byte* block = block_of(a.cache, a.rows, t, position);
      for (size_t g = 0; g < a.n_kv_heads; ++g) {
        const size_t from = t * a.stride + g * a.head_dim;
        convert(a.k.as<std::byte>() + from * k_bytes, a.k.dtype,
                key_at(a.cache, block, g, position, a.head_dim), a.cache.key, a.head_dim);
        convert(a.v.as<std::byte>() + from * v_bytes, a.v.dtype,
                value_at(a.cache, block, g, position, a.head_dim), a.cache.value, a.head_dim);
      }
    }
  });
}

}  // namespace weft::kernels
