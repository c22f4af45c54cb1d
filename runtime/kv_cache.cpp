// Strides of the paged KV cache.
#include "runtime/kv_cache.h"

namespace weft::runtime {

KvCache::KvCache(const planner::Formats& formats, size_t n_blocks, size_t n_layers,
                 size_t n_kv_heads, size_t head_dim) {
  const size_t head_elements = kernels::kKvBlockTokens * head_dim;
  const size_t key_head = head_elements * dtype_bytes(formats.kv_key);
  const size_t value_head = head_elements * dtype_bytes(formats.kv_value);
  layer_bytes_ = n_kv_heads * (key_head + value_head);
  arena_ = Pages(n_blocks * n_layers * layer_bytes_);
  first_.base = arena_.data();
  first_.block_stride = static_cast<int64_t>(n_layers * layer_bytes_);
  first_.value_offset = static_cast<int64_t>(n_kv_heads * key_head);
  first_.key_head_stride = static_cast<int64_t>(key_head);
  first_.value_head_stride = static_cast<int64_t>(value_head);
  first_.key = formats.kv_key;
  first_.value = formats.kv_value;
}

kernels::KvLayer KvCache::layer(size_t layer) const {
  kernels::KvLayer view = first_;
  view.base += layer * layer_bytes_;
  return view;
}

}  // namespace weft::runtime
