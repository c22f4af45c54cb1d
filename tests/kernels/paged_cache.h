// A small paged cache for tests: several layers and planes in one buffer full of NaN, blocks dealt
// to sequences from the last one down.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv_append.h"
#include "tests/kernels/tensors.h"

namespace weft::test {

class PagedCache {
 public:
  PagedCache(DType key, DType value, size_t n_kv_heads, size_t head_dim, size_t n_sequences,
             size_t positions)
      : columns_((positions + kernels::kKvBlockTokens - 1) / kernels::kKvBlockTokens),
        key_bytes_(kernels::kKvBlockTokens * head_dim * dtype_bytes(key)),
        value_bytes_(kernels::kKvBlockTokens * head_dim * dtype_bytes(value)),
        layer_bytes_(n_kv_heads * (key_bytes_ + value_bytes_)),
        n_kv_heads_(n_kv_heads),
        key_(key),
        value_(value),
        bytes_(kLayers * layer_bytes_ * columns_ * n_sequences, std::byte{0xff}) {
    const size_t n_blocks = columns_ * n_sequences;
    // Last block first, so that neighbours in a sequence are not neighbours in memory.
    for (size_t i = 0; i < n_blocks; ++i) table_.push_back(static_cast<int32_t>(n_blocks - 1 - i));
  }

  kernels::KvLayer layer(size_t index) {
    kernels::KvLayer layer;
    layer.base = bytes_.data() + index * layer_bytes_;
    layer.block_stride = static_cast<int64_t>(kLayers * layer_bytes_);
    layer.value_offset = static_cast<int64_t>(n_kv_heads_ * key_bytes_);
    layer.key_head_stride = static_cast<int64_t>(key_bytes_);
    layer.value_head_stride = static_cast<int64_t>(value_bytes_);
    layer.key = key_;
    layer.value = value_;
    return layer;
  }
  const std::vector<int32_t>& table() const { return table_; }
  std::vector<int32_t>& table() { return table_; }
  size_t columns() const { return columns_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  static constexpr size_t kLayers = 2;
  size_t columns_;
  size_t key_bytes_;
  size_t value_bytes_;
  size_t layer_bytes_;
  size_t n_kv_heads_;
  DType key_;
  DType value_;
  std::vector<std::byte> bytes_;
  std::vector<int32_t> table_;
};

// Token rows in the order of a batch.
struct Rows {
  std::vector<int32_t> positions;
  std::vector<int32_t> sequence;

  void add(int32_t of, size_t begin, size_t end) {
    for (size_t p = begin; p < end; ++p) {
      positions.push_back(static_cast<int32_t>(p));
      sequence.push_back(of);
    }
  }
  kernels::PagedRows paged(const PagedCache& cache) const {
    kernels::PagedRows rows;
    rows.positions = positions.data();
    rows.sequence = sequence.data();
    rows.block_table = cache.table().data();
    rows.table_stride = cache.columns();
    rows.tokens = positions.size();
    return rows;
  }
};

}  // namespace weft::test
