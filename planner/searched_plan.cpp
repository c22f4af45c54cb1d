// A plan from a layout that was searched for. Slots are those of the first replica; the others are
// jobs of their own.
#include <fmt/format.h>

#include <algorithm>

#include "planner/plan_fields.h"
#include "planner/plan_messages.h"
#include "planner/search.h"
#include "runtime/base/error.h"

namespace weft::planner {
namespace {

// Nodes are taken class by class in the file's order, a part of the replica each.
std::vector<std::vector<Slot>> slots_of(const ClusterSpec& cluster, const Layout& layout) {
  std::vector<std::vector<Slot>> slots;
  std::vector<size_t> next_node;
  for (size_t c = 0; c < cluster.nodes.size(); ++c) next_node.push_back(first_node(cluster, c));
  size_t part = 0, node = 0, gpu = 0;
  for (const PlacedStage& stage : layout.stages) {
    const StageShape& shape = stage.shape;
    if (slots.empty() || stage.part != part) {
      part = stage.part;
      node = next_node[shape.node_class];
      next_node[shape.node_class] += shape.n_nodes;
      gpu = 0;
    }
    std::vector<Slot>& taken = slots.emplace_back();
    const size_t in_node = shape.tp / shape.n_nodes;
    for (size_t rank = 0; rank < shape.tp; ++rank)
      taken.push_back({node + rank / in_node, gpu + rank % in_node});
    gpu += in_node;
  }
  return slots;
}

Limits limits_of(const SearchRequest& request, const Candidate& candidate) {
  const Workload& workload = request.workload;
  const Schedule& schedule = candidate.layout.schedule;
  Limits limits;
  limits.context = std::max(request.context, workload.prompt_tokens + workload.output_tokens);
  limits.max_sequences = schedule.batch;
  limits.batches_in_flight = schedule.batches_in_flight;
  limits.prefill_chunk = schedule.prefill_chunk;
  limits.max_batch_tokens = schedule.prefill_chunk + schedule.batch;
  size_t blocks = kMostKvBlocks;
  for (size_t s = 0; s < candidate.stages.size(); ++s)
    if (candidate.layout.stages[s].role != Role::prefill)
      blocks = std::min(blocks, candidate.stages[s].kv_blocks);
  // More than all sequences at full context are never used.
  const size_t useful = limits.max_sequences * context_blocks(limits);
  limits.kv_blocks = std::min({blocks, useful, most_kv_blocks(limits)});
  return limits;
}

MemoryParts memory_of(const StageFigures& stage, size_t kv_blocks) {
  MemoryParts memory;
  memory.kv = kv_blocks * stage.kv_block_bytes;
  for (const BytesPart& part : stage.fixed_parts) {
    if (part.title == "weights")
      memory.weights += part.bytes;
    else if (part.title == "activations")
      memory.activations += part.bytes;
    else
      memory.buffers += part.bytes;
  }
  return memory;
}

Predicted predicted_of(const Candidate& candidate, size_t kv_blocks) {
  Predicted predicted;
  Speed speed = {candidate.served.ttft_ms, candidate.served.tpot_ms, candidate.tokens_per_s, {}};
  for (const StageFigures& stage : candidate.stages) {
    predicted.rank_memory.push_back(memory_of(stage, std::min(kv_blocks, stage.kv_blocks)));
    speed.stages.push_back({stage.prefill_ms, stage.decode_ms});
  }
  predicted.speed = std::move(speed);
  return predicted;
}

}  // namespace

Plan plan_of(const SearchRequest& request, const Candidate& candidate, const Formats& formats) {
  Plan plan;
  plan.model_name = request.model.name;
  plan.facts_sha256 = facts_sha256(request.model);
  plan.cluster = request.cluster.name;
  plan.formats = formats;
  plan.numerics = request.invariant ? Numerics::invariant : Numerics::fast;
  plan.limits = limits_of(request, candidate);
  Replica& replica = plan.replicas.emplace_back();
  replica.count = candidate.layout.n_replicas;
  const std::vector<std::vector<Slot>> slots = slots_of(request.cluster, candidate.layout);
  for (size_t s = 0; s < candidate.layout.stages.size(); ++s) {
    const PlacedStage& placed = candidate.layout.stages[s];
    replica.stages.push_back(
        {placed.role, placed.layers, placed.shape.tp, 1, placed.shape.ep, slots[s]});
  }
  plan.predicted = predicted_of(candidate, plan.limits.kv_blocks);
  return plan;
}

Plan plan_of(const SearchRequest& request, const SearchResult& result, const Formats& formats) {
  if (!result.found) throw input_error("{}", result.verdict);
  return plan_of(request, result.best, formats);
}

}  // namespace weft::planner
