// Rows of a batch for measurements of single kernels: sequences whose blocks go round each other.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv_append.h"
#include "launch/kernel_set.h"
#include "planner/plan.h"

namespace weft::launch {

struct KernelRows {
  std::vector<int32_t> positions, sequence, table, ids;
  size_t columns = 0;  // blocks of a sequence
  size_t n_blocks = 0;

  KernelRows(const KernelShapes& shapes, const KernelWork& work)
      : columns((work.tokens + planner::kKvBlockTokens - 1) / planner::kKvBlockTokens),
        n_blocks(columns * work.batch) {
    for (size_t s = 0; s < work.batch; ++s)
      for (size_t i = 0; i < columns; ++i)
        table.push_back(static_cast<int32_t>(i * work.batch + s));
    for (size_t row = 0; row < work.rows(); ++row) {
      positions.push_back(static_cast<int32_t>(work.prefill ? row : work.tokens - 1));
      sequence.push_back(static_cast<int32_t>(work.prefill ? 0 : row));
      ids.push_back(static_cast<int32_t>((7919 * (row + 1)) % shapes.shard.vocab.size()));
    }
  }
  kernels::PagedRows paged() const {
    return {positions.data(), sequence.data(), table.data(), columns, positions.size()};
  }
};

// One matrix after another of an arena, round and round, as layers follow each other.
class WeightTurn {
 public:
  WeightTurn(std::byte* arena, size_t arena_bytes, size_t bytes)
      : arena_(arena), bytes_((bytes + 255) / 256 * 256), n_(arena_bytes / bytes_) {}
  std::byte* next() {
    index_ = (index_ + 1) % n_;
    return arena_ + index_ * bytes_;
  }

 private:
  std::byte* arena_;
  size_t bytes_, n_, index_ = 0;
};

// Of all works and kernels: what buffers must hold.
struct KernelRoom {
  size_t rows = 1, sampled = 1, context = 1, kv_tokens = 1;
  size_t matrix_bytes = 0;  // of the largest

  KernelRoom(const KernelShapes& shapes, const std::vector<KernelWork>& works);
};

}  // namespace weft::launch
