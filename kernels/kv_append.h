// Writes new keys and values into the paged cache.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

inline constexpr size_t kKvBlockTokens = 64;

// One layer of the cache, block-major [block, layer, key|value, kv_head, token, head_dim]: `base`
// is that layer's first key in block 0; strides are bytes, a token's head is dense.
struct KvLayer {
  std::byte* base = nullptr;
  int64_t block_stride = 0;
  int64_t value_offset = 0;     // from a block's first key to its first value
  int64_t key_head_stride = 0;  // kKvBlockTokens * head_dim * bytes
  int64_t value_head_stride = 0;
  DType key = DType::bf16;
  DType value = DType::bf16;
};

// Where each token row of a batch lives: row t is position positions[t] of the sequence whose
// blocks are block_table[sequence[t]]; block ids are never negative where they are used.
struct PagedRows {
  const int32_t* positions = nullptr;    // [tokens]
  const int32_t* sequence = nullptr;     // [tokens] row of block_table
  const int32_t* block_table = nullptr;  // [n_sequences, table_stride]
  size_t table_stride = 0;
  size_t tokens = 0;
};

struct KvAppend {
  In k;  // [tokens, n_kv_heads, head_dim], rows stride elements apart
  In v;  // likewise
  KvLayer cache;
  PagedRows rows;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t stride = 0;
};

void kv_append(const KvAppend& args, Stream& stream);

}  // namespace weft::kernels
