// A rank's paged KV cache: the stage's layers, this rank's KV heads, block-major in one arena.
#pragma once

#include "kernels/kv_append.h"
#include "planner/plan.h"
#include "runtime/base/pages.h"

namespace weft::runtime {

class KvCache {
 public:
  KvCache() = default;
  KvCache(const planner::Formats& formats, size_t n_blocks, size_t n_layers, size_t n_kv_heads,
          size_t head_dim);

  // Layer `layer` of the stage (0 = its first).
  kernels::KvLayer layer(size_t layer) const;
  size_t bytes() const { return arena_.bytes(); }

 private:
  Pages arena_;  // [block, layer, key|value, kv_head, token, head_dim]
  kernels::KvLayer first_;
  size_t layer_bytes_ = 0;
};

}  // namespace weft::runtime
