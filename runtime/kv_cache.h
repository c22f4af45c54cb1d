// A rank's paged KV cache: the stage's layers, this rank's KV heads, block-major in one arena, on
// the CPU or in a GPU's memory.
#pragma once

#include "kernels/kv_append.h"
#include "planner/plan.h"
#include "runtime/base/pages.h"

namespace weft::runtime {

class KvCache {
 public:
  KvCache() = default;
  // In memory of its own, on the CPU.
  KvCache(const planner::Formats& formats, size_t n_blocks, size_t n_layers, size_t n_kv_heads,
          size_t head_dim);
  // In memory of `bytes(…)` that outlives it.
  KvCache(const planner::Formats& formats, size_t n_layers, size_t n_kv_heads, size_t head_dim,
          std::byte* memory);

  static size_t bytes(const planner::Formats& formats, size_t n_blocks, size_t n_layers,
                      size_t n_kv_heads, size_t head_dim);

  // Layer `layer` of the stage (0 = its first).
  kernels::KvLayer layer(size_t layer) const;

 private:
  Pages arena_;  // [block, layer, key|value, kv_head, token, head_dim]
  kernels::KvLayer first_;
  size_t layer_bytes_ = 0;
};

}  // namespace weft::runtime
