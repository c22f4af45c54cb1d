// What every rank remembers of the sequences that hold KV: one slot each, changed only by batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_append.h"
#include "planner/plan.h"
#include "runtime/batch.h"

namespace weft::runtime {

class Slots {
 public:
  // `vocab` is not 0 on the rank that samples: it also remembers which ids occurred.
  Slots(const planner::Limits& limits, size_t vocab);

  // Takes a batch's deltas and writes its rows: positions, slots, and token ids where they are
  // literal. Throws Error where the batch breaks a limit of the plan.
  void apply(const Batch& batch);

  kernels::PagedRows rows() const;
  // Blocks in the slot's row of the table.
  size_t n_blocks(int32_t slot) const {
    return static_cast<size_t>(n_blocks_[static_cast<size_t>(slot)]);
  }
  // Token ids of the rows, after the last tokens of slots have been filled in from last_token.
  std::span<const int32_t> ids();

  // Sets the token that was sampled for a slot; it is the next row's input.
  void set_last(int32_t slot, int32_t token) { last_[static_cast<size_t>(slot)] = token; }
  const kernels::SamplingParams& params(int32_t slot) const {
    return params_[static_cast<size_t>(slot)];
  }
  const uint8_t* seen(int32_t slot) const {
    return seen_.data() + static_cast<size_t>(slot) * vocab_;
  }
  void mark_seen(int32_t slot, int32_t token) {
    seen_[static_cast<size_t>(slot) * vocab_ + static_cast<size_t>(token)] = 1;
  }

 private:
  void start(int32_t slot, const kernels::SamplingParams& params);
  void append_blocks(int32_t slot, std::span<const int32_t> blocks);

  planner::Limits limits_;
  size_t vocab_;
  size_t table_stride_;                          // blocks of the longest sequence
  std::vector<int32_t> table_;                   // [max_sequences, table_stride]
  std::vector<int32_t> n_blocks_;                // [max_sequences]
  std::vector<int32_t> last_;                    // [max_sequences]
  std::vector<kernels::SamplingParams> params_;  // [max_sequences]
  std::vector<uint8_t> seen_;                    // [max_sequences, vocab]
  std::vector<int32_t> positions_;               // rows of the current batch
  std::vector<int32_t> sequence_;                // slot of each row
  std::vector<int32_t> ids_;                     // kFromSlot where the slot's last token is meant
};

}  // namespace weft::runtime
