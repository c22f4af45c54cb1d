// A rank on a GPU: decode steps replay graphs, everything else is enqueued kernel by kernel.
#pragma once

#include <memory>

#include "planner/plan.h"
#include "runtime/gpu_arena.h"
#include "runtime/stage_backend.h"

namespace weft::runtime {

// What the rank takes of its GPU's memory beside CUDA's own, part by part; exact.
planner::MemoryParts gpu_memory_parts(const RankPlace& place, const DecoderShape& shape,
                                      const planner::Plan& plan, parallel::Communicator& group,
                                      ResultShape result_shape, kernels::Stream& stream);

// Takes all but the weights' part from `arena`. The links are of GPU memory. With `graphs` decode
// steps are captured in prepare(), where the group allows it and no clock looks on; where CUDA
// refuses, a warning says why and every step is enqueued anew.
std::unique_ptr<StageBackend> make_gpu_backend(const RankPlace& place, const DecoderShape& shape,
                                               const StageWeights& weights,
                                               const BackendLinks& links, kernels::Stream& stream,
                                               ResultShape result_shape, GpuArena& arena,
                                               bool graphs);

}  // namespace weft::runtime
