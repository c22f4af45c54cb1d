// A plan from a layout given by hand (`--layout`, `--tp/--pp`): legality, memory, KV blocks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/memory_model.h"
#include "planner/plan.h"

namespace weft::planner {

struct StageLayout {
  size_t n_layers = 0;
  size_t tp = 1;
};

// "4x2,2x1": LAYERSxTP, first stage first. Throws Error naming the bad part.
std::vector<StageLayout> parse_layout(std::string_view text);
// pp stages of tp ranks; the layers are balanced, the earlier stages take the remainder (the last
// stage also has the head). Throws Error when pp > n_layers.
std::vector<StageLayout> balanced_layout(const ModelSpec& spec, size_t tp, size_t pp);

// What the user may set; unset values take defaults that fit the memory.
struct ManualOptions {
  Formats formats;
  Numerics numerics = Numerics::invariant;
  std::optional<size_t> context;            // default: the model's
  std::optional<size_t> max_sequences;      // default 64
  std::optional<size_t> max_batch_tokens;   // default 2048
  std::optional<size_t> prefill_chunk;      // default 512
  std::optional<size_t> batches_in_flight;  // default: number of stages
  std::optional<size_t> kv_blocks;          // default: what fits, at most max_sequences * context
  size_t rank_memory_bytes = 0;             // what one rank may use in all
  Backend backend = Backend::cpu;
  size_t gpus_per_node = 8;  // slots are counted through node by node
};

// Throws Error that lists every problem of the layout and of the memory with its numbers:
// "stage 0: short 1.2 GiB: weights 61.0 + KV 14.1 + activations 2.3 of 79.2 GiB".
Plan manual_plan(const ModelSpec& spec, const std::vector<StageLayout>& layout,
                 const ManualOptions& options);

}  // namespace weft::planner
