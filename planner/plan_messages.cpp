// Sums over the parts of a message, for limits within their ranges (planner/plan_fields.h).
#include "planner/plan_messages.h"

#include <algorithm>

#include "planner/plan_fields.h"

namespace weft::planner {
namespace {

size_t bytes_beside_blocks(const Limits& limits) {
  return kBatchHeaderBytes + limits.max_sequences * (kBatchEntryBytes + kBatchStartBytes) +
         limits.max_batch_tokens * kBatchItemBytes;
}

size_t all_context_blocks(const Limits& limits) {
  return limits.max_sequences * context_blocks(limits);
}

}  // namespace

size_t context_blocks(const Limits& limits) {
  return limits.context / kKvBlockTokens + (limits.context % kKvBlockTokens == 0 ? 0 : 1);
}

size_t most_batch_blocks(const Limits& limits) {
  return std::min(limits.kv_blocks, all_context_blocks(limits));
}

size_t most_kv_blocks(const Limits& limits) {
  const size_t fitting = (kMostMessageBytes - bytes_beside_blocks(limits)) / kBatchItemBytes;
  return all_context_blocks(limits) <= fitting ? kMostKvBlocks : fitting;
}

size_t batch_bytes(const Limits& limits) {
  return bytes_beside_blocks(limits) + most_batch_blocks(limits) * kBatchItemBytes;
}

size_t result_bytes(const Limits& limits) {
  constexpr size_t row = (3 + 2 * kMostTopTokens) * 4;  // slot, token, log-probability; the likely
  return kResultHeaderBytes + limits.max_sequences * row;
}

}  // namespace weft::planner
