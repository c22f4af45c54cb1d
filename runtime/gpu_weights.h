// A rank's slice of the weights in GPU memory: from the file through pinned buffers, or made there.
#pragma once

#include "runtime/gpu_arena.h"
#include "runtime/weights.h"

namespace weft::runtime {

// Bytes of the slice, whose parts start at multiples of 64.
size_t gpu_weight_bytes(const planner::ModelSpec& spec, const planner::Plan& plan, size_t stage,
                        size_t tp_rank);

// As load_weights, into `arena`, which outlives the weights; gate and up rows in turn. The stream
// has a GPU's; node_group is of host memory.
StageWeights load_gpu_weights(TensorSource& source, const planner::ModelSpec& spec,
                              const planner::Plan& plan, size_t stage, size_t tp_rank,
                              parallel::Communicator& node_group,
                              const std::vector<size_t>& node_tp_ranks, kernels::Stream& stream,
                              GpuArena& arena, const LoadProgress& progress, LoadReport* report);

}  // namespace weft::runtime
