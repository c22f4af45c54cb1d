// One step's work as every rank needs it: what changed since the last one, and no more. Rank 0
// fills it, sends it to all ranks, and every stage executes batches in the order of their ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling.h"
#include "planner/plan.h"

namespace weft::runtime {

// Token rows of one sequence in a batch.
struct BatchEntry {
  int32_t slot = 0;
  int32_t first_position = 0;  // of the first row
  int32_t n_rows = 0;
  int32_t n_blocks = 0;       // appended to the slot's block table, next in Batch::blocks
  uint32_t output_index = 0;  // of the token that is sampled from the last row
  uint8_t starts = 0;   // the slot begins a sequence; its parameters are next in Batch::starts
  uint8_t literal = 0;  // tokens are next in Batch::tokens; else one row, the slot's last token
  uint8_t samples = 0;  // the last row is sampled
  uint8_t unused = 0;
};

struct Batch {
  uint64_t id = 0;    // 1, 2, 3, …
  bool last = false;  // no work: ranks leave their loop
  std::vector<BatchEntry> entries;
  std::vector<int32_t> tokens;
  std::vector<int32_t> blocks;
  std::vector<kernels::SamplingParams> starts;

  void reserve(const planner::Limits& limits);
  void clear();
  size_t n_rows() const;
  size_t n_samples() const;

  // Bytes that the largest batch under these limits takes on the wire.
  static size_t max_bytes(const planner::Limits& limits);
  // Between ranks of one build: plain memory, counts first. decode() throws Error on counts that
  // do not fit the message.
  size_t encode(std::span<std::byte> to) const;
  void decode(std::span<const std::byte> from);
};

}  // namespace weft::runtime
