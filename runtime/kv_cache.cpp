// Strides of the paged KV cache.
#include "runtime/kv_cache.h"

namespace weft::runtime {

KvCache::KvCache(const planner::Formats& formats, size_t n_blocks, size_t n_layers,
                 size_t n_kv_heads, size_t head_dim)
    : KvCache(formats, n_layers, n_kv_heads, head_dim, nullptr) {
  arena_ = Pages(n_blocks * n_layers * layer_bytes_);
  first_.base = arena_.data();
}

KvCache::KvCache(const planner::Formats& formats, size_t n_layers, size_t n_kv_heads,
                 size_t head_dim, std::byte* memory) {
  const size_t head_elements = kernels::kKvBlockTokens * head_dim;
  const size_t key_head = head_elements * dtype_bytes(formats.kv_key);
  const size_t value_head = head_elements * dtype_bytes(formats.kv_value);
  layer_bytes_ = n_kv_heads * (key_head + value_head);
  first_.base = memory;
  first_.block_stride = static_cast<int64_t>(n_layers * layer_bytes_);
  first_.value_offset = static_cast<int64_t>(n_kv_heads * key_head);
  first_.key_head_stride = static_cast<int64_t>(key_head);
  first_.value_head_stride = static_cast<int64_t>(value_head);
  first_.key = formats.kv_key;
  first_.value = formats.kv_value;
}

size_t KvCache::bytes(const planner::Formats& formats, size_t n_blocks, size_t n_layers,
                      size_t n_kv_heads, size_t head_dim) {
  return n_blocks * n_layers * KvCache(formats, 1, n_kv_heads, head_dim, nullptr).layer_bytes_;
}

kernels::KvLayer KvCache::layer(size_t layer) const {
  kernels::KvLayer view = first_;
  view.base += layer * layer_bytes_;
  return view;
}

}  // namespace weft::runtime
