// The planner's StageCosts: a model on classes of equal GPUs, in one engine, under one workload,
// priced by curves. Throws Error where a stage can't be split as asked; ask tp_problem() first.
#pragma once

#include <string>
#include <vector>

#include "planner/gpu_memory.h"
#include "planner/stage_cost.h"
#include "planner/step_cost.h"

namespace weft::planner {

// One class of nodes, as far as costs go.
struct CostNode {
  MachineProfile machine;
  double gpu_memory_gib = 0;  // 0: the profile's
  NodeLink link;              // per GPU; all zero: the profile's own card
};

struct CostSetting {
  ModelSpec model;
  EngineProfile engine;
  std::string engine_version;
  NumberFormat weights = NumberFormat::bf16;
  NumberFormat kv_key = NumberFormat::bf16;
  NumberFormat kv_value = NumberFormat::bf16;
  std::vector<CostNode> nodes;  // by StageShape::node_class
  size_t prompt_tokens = 1;
  size_t output_tokens = 1;
  size_t attention_dp = 1;
};

class CostModel final : public StageCosts {
 public:
  explicit CostModel(CostSetting setting);

  // Not where more layers than a cache holds cost more each.
  bool affine_in_layers() const override;
  bool shares_hosts() const override;
  StageTimes stage(const StageShape& shape, const Schedule& schedule) const override;
  double prefill_ms(const StageShape& shape, const Schedule& schedule) const override;
  double decode_ms(const StageShape& shape, const Schedule& schedule) const override;
  StageTimes edge(const EdgeShape& edge, const Schedule& schedule) const override;
  // Each rank of the narrower group over its own link.
  double handover_ms(const EdgeShape& edge, size_t n_layers,
                     const Schedule& schedule) const override;
  size_t fixed_bytes(const StageShape& shape, const Schedule& schedule) const override;
  std::vector<BytesPart> fixed_parts(const StageShape& shape,
                                     const Schedule& schedule) const override;
  size_t kv_block_bytes(const StageShape& shape) const override;
  size_t rank_memory_bytes(size_t node_class) const override;

  // By part, for reports.
  StepParts decode_parts(const StageShape& shape, const Schedule& schedule) const;
  // Of one chunk: the mean over the prompt's chunks.
  StepParts prefill_parts(const StageShape& shape, const Schedule& schedule) const;
  // Whether the edge, or the hand-over of so many layers, leaves the links' curves.
  bool edge_extrapolated(const EdgeShape& edge, const Schedule& schedule) const;
  bool handover_extrapolated(const EdgeShape& edge, size_t n_layers,
                             const Schedule& schedule) const;
  GpuMemory memory(const StageShape& shape, const Schedule& schedule) const;

  const CostSetting& setting() const { return setting_; }
  const EngineHabits& habits() const { return habits_; }

 private:
  StepSetting step_setting(size_t node_class) const;
  Estimate edge_us(const EdgeShape& edge, size_t tokens) const;
  Estimate handover_us(const EdgeShape& edge, size_t n_layers, const Schedule& schedule) const;
  Estimate sent_us(const EdgeShape& edge, double bytes) const;
  size_t chunk_tokens(const Schedule& schedule) const;

  CostSetting setting_;
  EngineHabits habits_;
};

// Steps that a prompt takes, and tokens of each (the last may hold fewer).
size_t prompt_chunks(size_t prompt_tokens, size_t prefill_chunk);

}  // namespace weft::planner
