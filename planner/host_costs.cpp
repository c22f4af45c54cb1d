#include "planner/host_costs.h"

#include "planner/memory_model.h"

namespace weft::planner {
namespace {

// A stage counts as first or last by what lies in it; a neighbour stands for all other ranks.
Replica replica_around(const StageShape& shape, size_t most_ranks) {
  Replica replica;
  const size_t begin = shape.has_embedding ? 0 : 1;
  const auto add = [&](Range layers, size_t tp) {
    Stage& stage = replica.stages.emplace_back();
    stage.layers = layers;
    stage.tp = tp;
  };
  if (!shape.has_embedding) add({0, 1}, most_ranks);
  add({begin, begin + shape.n_layers}, shape.tp);
  if (!shape.has_head) add({begin + shape.n_layers, begin + shape.n_layers + 1}, most_ranks);
  return replica;
}

}  // namespace

HostCosts::HostCosts(const CostModel& model, const Formats& formats, Numerics numerics,
                     size_t context, size_t most_ranks)
    : model_(model),
      formats_(formats),
      numerics_(numerics),
      context_(context),
      most_ranks_(most_ranks) {}

MemoryParts HostCosts::memory(const StageShape& shape, const Schedule& schedule,
                              size_t kv_blocks) const {
  Plan plan;
  plan.formats = formats_;
  plan.numerics = numerics_;
  plan.limits.context = context_;
  plan.limits.max_sequences = schedule.batch;
  plan.limits.batches_in_flight = schedule.batches_in_flight;
  plan.limits.prefill_chunk = schedule.prefill_chunk;
  plan.limits.max_batch_tokens = schedule.prefill_chunk + schedule.batch;
  plan.limits.kv_blocks = kv_blocks;
  plan.replicas.push_back(replica_around(shape, most_ranks_));
  return rank_memory(model_.setting().model, plan, shape.has_embedding ? 0 : 1);
}

size_t HostCosts::fixed_bytes(const StageShape& shape, const Schedule& schedule) const {
  return memory(shape, schedule, 0).total();
}

std::vector<BytesPart> HostCosts::fixed_parts(const StageShape& shape,
                                              const Schedule& schedule) const {
  const MemoryParts parts = memory(shape, schedule, 0);
  return {
      {"weights", parts.weights}, {"activations", parts.activations}, {"buffers", parts.buffers}};
}

// A block also takes its place in the messages of every batch in flight.
size_t HostCosts::kv_block_bytes(const StageShape& shape) const {
  constexpr size_t many_in_flight = 128;
  const Schedule schedule = {1, many_in_flight, 1};
  return memory(shape, schedule, 1).total() - memory(shape, schedule, 0).total();
}

}  // namespace weft::planner
