// Bytes of one GPU rank by part, for any weight and KV format and for mixtures of experts.
// planner/memory_model.h counts what weft's CPU backend allocates, term by term; this is the GPU's.
#pragma once

#include <cstddef>

#include "planner/step_cost.h"

namespace weft::planner {

struct GpuMemory {
  size_t weights = 0;      // tensors as sharded and padded, with their scales
  size_t activations = 0;  // of the largest step: a prefill chunk or the whole batch
  size_t graphs = 0;       // captured decode steps
  size_t buffers = 0;      // communication, edges between stages, logits
  size_t reserve = 0;      // libraries and the allocator's slack, from the engine profile
  size_t total() const { return weights + activations + graphs + buffers + reserve; }

  bool operator==(const GpuMemory&) const = default;
};

// Without KV. `reserve_gib` is the engine's. Throws Error where tp or ep can't split the model, or
// a size is beyond what can be planned.
GpuMemory gpu_memory(const StepSetting& setting, const StageShape& shape, size_t batch,
                     size_t prefill_chunk, double reserve_gib);

// One block of kKvBlockTokens tokens of the stage's layers on one rank.
size_t gpu_kv_block_bytes(const StepSetting& setting, const StageShape& shape);

}  // namespace weft::planner
