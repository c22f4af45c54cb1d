// Bytes a rank of a stage holds, by part, from the tensors as they are really sharded and padded.
#pragma once

#include <string>
#include <vector>

#include "planner/plan.h"

namespace weft::planner {

// Threads of a rank that scratch is counted for: a plan does not know its machine's cores, and 64
// are as many as a rank of a large host gets. Fewer leave at most 25 MB unused, and nothing where
// the products of a batch need more scratch than attention on all threads.
inline constexpr size_t kAssumedThreads = 64;
// The process itself: code, libraries, MPI's own memory. A rank of the demo model was measured to
// hold 25 to 30 MiB more than its arenas, 20 of them pages of files that all ranks share.
inline constexpr size_t kProcessBytes = size_t{32} << 20;

// What a rank computes on, and so what it holds beside weights and KV.
enum class Backend { cpu, cuda };

// Weights of one rank of a stage (norms, biases, embedding on the first stage, head on the last; a
// tied head is held by both ends where they are different ranks).
size_t weight_bytes(const ModelSpec& spec, const Plan& plan, size_t stage);

// KV cache of one block (kKvBlockTokens tokens of all the stage's layers) on one rank.
size_t kv_block_bytes(const ModelSpec& spec, const Plan& plan, size_t stage);

// All parts, with plan.limits.kv_blocks blocks. On a GPU: of its memory, beside what CUDA takes for
// itself.
MemoryParts rank_memory(const ModelSpec& spec, const Plan& plan, size_t stage,
                        Backend backend = Backend::cpu);

// Fills plan.predicted.rank_memory, stage by stage, and what predict_edges fills.
void predict_memory(const ModelSpec& spec, Plan& plan, Backend backend = Backend::cpu);
// Fills plan.predicted.edge_token_bytes, edge by edge.
void predict_edges(const ModelSpec& spec, Plan& plan);

// Stages whose ranks hold more than rank_memory_bytes, with the numbers: "stage 0: short 1.20 GiB:
// weights 61.0 + KV 14.1 + activations 2.30 + buffers 0.50 of 79.2 GiB". Stages of an illegal tp
// are left out: problems() names them.
std::vector<std::string> memory_problems(const ModelSpec& spec, const Plan& plan,
                                         size_t rank_memory_bytes, Backend backend = Backend::cpu);

// "stage 0: short 1.20 GiB: weights 61.0 + KV 14.1 + …" for a rank that holds more than the limit.
std::string shortage_text(size_t stage, const MemoryParts& memory, size_t limit);

// Bytes in GiB with three significant digits: "61.0", "0.0123".
std::string gib_text(size_t bytes);

}  // namespace weft::planner
