// Costs of CPU ranks: times from a cost model's curves, memory term by term as weft's CPU backend
// allocates it (memory_model.h), so that a plan that is searched for also loads.
#pragma once

#include <vector>

#include "planner/cost_model.h"
#include "planner/plan.h"

namespace weft::planner {

class HostCosts final : public StageCosts {
 public:
  // `model` outlives it. `context`: tokens of the longest sequence; `most_ranks` of a job.
  HostCosts(const CostModel& model, const Formats& formats, Numerics numerics, size_t context,
            size_t most_ranks);

  bool affine_in_layers() const override { return model_.affine_in_layers(); }
  bool shares_hosts() const override { return model_.shares_hosts(); }
  StageTimes stage(const StageShape& shape, const Schedule& schedule) const override {
    return model_.stage(shape, schedule);
  }
  double prefill_ms(const StageShape& shape, const Schedule& schedule) const override {
    return model_.prefill_ms(shape, schedule);
  }
  double decode_ms(const StageShape& shape, const Schedule& schedule) const override {
    return model_.decode_ms(shape, schedule);
  }
  double handover_ms(const EdgeShape& edge, size_t n_layers,
                     const Schedule& schedule) const override {
    return model_.handover_ms(edge, n_layers, schedule);
  }
  StageTimes edge(const EdgeShape& edge, const Schedule& schedule) const override {
    return model_.edge(edge, schedule);
  }
  size_t fixed_bytes(const StageShape& shape, const Schedule& schedule) const override;
  std::vector<BytesPart> fixed_parts(const StageShape& shape,
                                     const Schedule& schedule) const override;
  size_t kv_block_bytes(const StageShape& shape) const override;
  size_t rank_memory_bytes(size_t node_class) const override {
    return model_.rank_memory_bytes(node_class);
  }

 private:
  MemoryParts memory(const StageShape& shape, const Schedule& schedule, size_t kv_blocks) const;

  const CostModel& model_;
  Formats formats_;
  Numerics numerics_;
  size_t context_;
  size_t most_ranks_;
};

}  // namespace weft::planner
