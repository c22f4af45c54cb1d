// Bytes a rank of a stage holds, by part, from the tensors as they are really sharded and padded.
#pragma once

#include "planner/plan.h"

namespace weft::planner {

// Weights of one rank of a stage (norms, biases, embedding on the first stage, head on the last; a
// tied head is held by both ends where they are different ranks).
size_t weight_bytes(const ModelSpec& spec, const Plan& plan, size_t stage);

// KV cache of one block (kKvBlockTokens tokens of all the stage's layers) on one rank.
size_t kv_block_bytes(const ModelSpec& spec, const Plan& plan, size_t stage);

// All parts, with plan.limits.kv_blocks blocks.
MemoryParts rank_memory(const ModelSpec& spec, const Plan& plan, size_t stage);

}  // namespace weft::planner
