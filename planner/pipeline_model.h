// Closed forms of a pipeline of stages that each do one thing at a time, in order.
//
// Prefill: the n chunks of a prompt follow each other, so the last leaves after Σt + (n - 1) max t.
// Decode: each of M batches in flight comes back to the first stage when it has left the last; the
// period of a batch is the largest cycle mean of that event graph, max(Σ(t + c), M · max t): its
// own way round, or M turns of the slowest stage (max-plus algebra; Baccelli et al.,
// Synchronization and Linearity, 1992, chapter 3).
#pragma once

#include <cstddef>
#include <span>

#include "planner/stage_cost.h"

namespace weft::planner {

struct StageAndEdge {
  StageTimes stage;
  StageTimes edge;  // to the next stage; zero after the last
};

// Σ and max of each stage with its edge. kv_blocks is left to the caller.
PipelineTimes pipeline_times(std::span<const StageAndEdge> stages);

// Milliseconds from a prompt's arrival at an idle pipeline to its last chunk's end.
double prefill_latency_ms(const PipelineTimes& times, size_t n_chunks);
// Milliseconds between two tokens of a sequence, decoding alone.
double decode_period_ms(const PipelineTimes& times, size_t batches_in_flight);

}  // namespace weft::planner
