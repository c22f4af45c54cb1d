// The flags that make or narrow a plan, shared by `weft plan`, `weft run` and `weft check`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/manual_plan.h"

namespace CLI {
class App;
}

namespace weft::launch {

struct PlanOptions {
  std::optional<std::string> plan_file;
  std::optional<std::string> layout;
  std::optional<size_t> tp;
  std::optional<size_t> pp;
  std::optional<DType> dtype;                 // unset: auto
  std::optional<planner::Numerics> numerics;  // unset: the plan's, else invariant
  std::optional<size_t> context;
  std::optional<size_t> max_sequences;
  std::optional<size_t> max_batch_tokens;
  std::optional<size_t> prefill_chunk;
  std::optional<size_t> batches_in_flight;
  std::optional<size_t> kv_blocks;
  std::optional<size_t> rank_memory_bytes;  // --gpu-memory-gib
  std::optional<size_t> gpus_per_node;
  planner::Backend backend = planner::Backend::cpu;  // no flag: what the ranks run on
};

// --layout, --tp, --pp, --dtype, --numerics.
void add_layout_options(CLI::App& command, PlanOptions& options);
// These, the limits and the memory.
void add_plan_options(CLI::App& command, PlanOptions& options);
// --gpu-memory-gib alone; part of add_plan_options.
void add_memory_option(CLI::App& command, PlanOptions& options);
// --plan FILE; excludes the layout flags. Called after add_plan_options.
void add_plan_file_option(CLI::App& command, PlanOptions& options);

// The plan of the file, with limits lowered by flags, or of the layout flags, or of one stage over
// all ranks. `world_size` is the job's, or 0 where there is no job yet; then a layout must be
// given. `rank_memory_bytes` is what a rank may use where --gpu-memory-gib does not say it; 0 takes
// this machine's memory, shared by all ranks. Throws Error with everything that is wrong.
planner::Plan make_plan(const PlanOptions& options, const planner::ModelSpec& spec,
                        size_t world_size, size_t rank_memory_bytes);

// Memory that this machine, or the container's limit, gives to all ranks: a sixteenth is kept for
// the system.
size_t machine_memory_bytes();

}  // namespace weft::launch
