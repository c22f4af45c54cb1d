// Sizes of the messages between ranks. They follow from a plan's limits alone: every rank keeps
// buffers for the largest, the memory model counts those, and a plan whose largest message can't be
// sent is refused.
#pragma once

#include <cstddef>

#include "planner/plan.h"

namespace weft::planner {

// MPI counts the bytes of a message in an int.
inline constexpr size_t kMostMessageBytes = 2'147'483'647;

// Of a batch on the wire (runtime/batch.h).
inline constexpr size_t kBatchHeaderBytes = 32;
inline constexpr size_t kBatchEntryBytes = 24;  // a sequence
inline constexpr size_t kBatchStartBytes = 24;  // a sequence that begins
inline constexpr size_t kBatchItemBytes = 4;    // a token or a block

// Of a batch's results (runtime/token_results.h): as many likely tokens as can be asked for.
inline constexpr size_t kResultHeaderBytes = 16;
inline constexpr size_t kMostTopTokens = 100;

// Blocks of the longest sequence.
size_t context_blocks(const Limits& limits);
// Blocks that one batch appends at most: each block has one owner, and a sequence is given the
// blocks of its whole prompt when it starts.
size_t most_batch_blocks(const Limits& limits);
// The most KV blocks with which a batch's message can be sent under the other limits.
size_t most_kv_blocks(const Limits& limits);

// Bytes of the largest batch, and of the largest results without whole rows of logits.
size_t batch_bytes(const Limits& limits);
size_t result_bytes(const Limits& limits);

}  // namespace weft::planner
