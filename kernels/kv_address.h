// Where a position's key and value lie in the paged cache.
#pragma once

#include "kernels/kv_append.h"
#include "runtime/base/error.h"

namespace weft::kernels {

// First key of the block that holds a position of token row t's sequence.
inline std::byte* block_of(const KvLayer& cache, const PagedRows& rows, size_t t, size_t position) {
  const size_t column = position / kKvBlockTokens;
  WEFT_EXPECT(column < rows.table_stride);
  const int64_t id =
      rows.block_table[static_cast<size_t>(rows.sequence[t]) * rows.table_stride + column];
  WEFT_EXPECT(id >= 0);
  return cache.base + id * cache.block_stride;
}

// The key, and the value, of KV head g at a position of that block.
inline std::byte* key_at(const KvLayer& cache, std::byte* block, size_t g, size_t position,
                         size_t head_dim) {
  const size_t element = position % kKvBlockTokens * head_dim;
  return block + static_cast<int64_t>(g) * cache.key_head_stride + element * dtype_bytes(cache.key);
}

inline std::byte* value_at(const KvLayer& cache, std::byte* block, size_t g, size_t position,
                           size_t head_dim) {
  const size_t element = position % kKvBlockTokens * head_dim;
  return block + cache.value_offset + static_cast<int64_t>(g) * cache.value_head_stride +
         element * dtype_bytes(cache.value);
}

}  // namespace weft::kernels
