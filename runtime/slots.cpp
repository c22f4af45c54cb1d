// Per-slot state and the rows of the current batch.
#include "runtime/slots.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

constexpr int32_t kFromSlot = -1;

// Takes the next n items of one of a batch's lists.
template <class T>
std::span<const T> take(const std::vector<T>& items, size_t* used, int32_t n) {
  if (n < 0 || static_cast<size_t>(n) > items.size() - *used)
    throw run_error("a batch names {} items of a list that has {} left", n, items.size() - *used);
  const std::span<const T> part(items.data() + *used, static_cast<size_t>(n));
  *used += part.size();
  return part;
}

}  // namespace

Slots::Slots(const planner::Limits& limits, size_t vocab)
    : limits_(limits),
      vocab_(vocab),
      table_stride_((limits.context + planner::kKvBlockTokens - 1) / planner::kKvBlockTokens),
      table_(limits.max_sequences * table_stride_),
      n_blocks_(limits.max_sequences),
      last_(limits.max_sequences),
      params_(limits.max_sequences),
      seen_(limits.max_sequences * vocab) {
  positions_.reserve(limits.max_batch_tokens);
  sequence_.reserve(limits.max_batch_tokens);
  ids_.reserve(limits.max_batch_tokens);
}

void Slots::start(int32_t slot, const kernels::SamplingParams& params) {
  const auto s = static_cast<size_t>(slot);
  n_blocks_[s] = 0;
  params_[s] = params;
  std::fill_n(seen_.begin() + static_cast<ptrdiff_t>(s * vocab_), vocab_, uint8_t{0});
}

void Slots::append_blocks(int32_t slot, std::span<const int32_t> blocks) {
  const auto s = static_cast<size_t>(slot);
  const auto n = static_cast<size_t>(n_blocks_[s]);
  if (blocks.size() > table_stride_ - n)
    throw run_error("a sequence would hold {} KV blocks; the context has {}", n + blocks.size(),
                    table_stride_);
  std::copy(blocks.begin(), blocks.end(),
            table_.begin() + static_cast<ptrdiff_t>(s * table_stride_ + n));
  n_blocks_[s] += static_cast<int32_t>(blocks.size());
}

void Slots::apply(const Batch& batch) {
  positions_.clear();
  sequence_.clear();
  ids_.clear();
  if (batch.n_rows() > limits_.max_batch_tokens)
    throw run_error("a batch has {} rows; the plan allows {}", batch.n_rows(),
                    limits_.max_batch_tokens);
  size_t n_starts = 0, n_blocks = 0, n_tokens = 0;
  for (const BatchEntry& entry : batch.entries) {
    if (entry.starts) start(entry.slot, take(batch.starts, &n_starts, 1).front());
    append_blocks(entry.slot, take(batch.blocks, &n_blocks, entry.n_blocks));
    for (int32_t i = 0; i < entry.n_rows; ++i) {
      positions_.push_back(entry.first_position + i);
      sequence_.push_back(entry.slot);
    }
    if (!entry.literal) {
      ids_.push_back(kFromSlot);
      continue;
    }
    const auto tokens = take(batch.tokens, &n_tokens, entry.n_rows);
    ids_.insert(ids_.end(), tokens.begin(), tokens.end());
    if (vocab_ > 0)
      for (int32_t token : tokens) mark_seen(entry.slot, token);
  }
}

kernels::PagedRows Slots::rows() const {
  return {positions_.data(), sequence_.data(), table_.data(), table_stride_, positions_.size()};
}

std::span<const int32_t> Slots::ids() {
  for (size_t i = 0; i < ids_.size(); ++i)
    if (ids_[i] == kFromSlot) ids_[i] = last_[static_cast<size_t>(sequence_[i])];
  return ids_;
}

}  // namespace weft::runtime
