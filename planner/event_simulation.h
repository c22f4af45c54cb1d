// Continuous batching over a pipeline, step by step: checks the closed forms of pipeline_model.h
// and serving_model.h, and draws a schedule; no decision rests on it.
//
// M batches go round. When one has left the last stage, its next step enters the first: a token for
// each of its sequences, and the next chunk of the oldest waiting prompt. A stage does one step at
// a time, in order; an edge delays a step and holds nothing up. A sequence that has all its tokens
// is followed at once by a new request, which waits for its chunks in order of arrival.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/pipeline_model.h"

namespace weft::planner {

struct SimulatedLoad {
  std::vector<StageAndEdge> stages;
  size_t batches_in_flight = 1;
  size_t sequences = 1;      // requests at once
  size_t prompt_chunks = 1;  // steps that a prompt takes
  size_t output_tokens = 2;
  size_t rounds = 4;  // requests that each place serves; the first is not counted
};

struct SimulatedResult {
  double ttft_ms = 0;
  double tpot_ms = 0;
  double tokens_per_s = 0;
};

SimulatedResult simulate(const SimulatedLoad& load);

// One step at one stage.
struct StageStep {
  size_t stage = 0;
  size_t batch = 0;  // in flight
  bool decodes = false;
  bool prefills = false;
  double begin_ms = 0;
  double end_ms = 0;
};
// The load's first `n_passes` passes through all stages, in the order in which they enter.
std::vector<StageStep> simulated_steps(const SimulatedLoad& load, size_t n_passes);

// Milliseconds between two tokens when all sequences only decode, after `steps` rounds of warm-up.
double simulated_decode_period_ms(const std::vector<StageAndEdge>& stages, size_t batches_in_flight,
                                  size_t steps = 200);

// Milliseconds in which the chunks of one prompt pass an idle pipeline, edges included.
double simulated_prefill_ms(const std::vector<StageAndEdge>& stages, size_t n_chunks);
// The same where the stages only prefill: until all keys and values are with those that decode.
// Each stage sends a chunk's, in handover_ms[stage], once it has computed them; meanwhile it goes
// on.
double simulated_handover_ms(const std::vector<StageAndEdge>& stages,
                             const std::vector<double>& handover_ms, size_t n_chunks);

}  // namespace weft::planner
