// Batches made for measurements: decode steps at a given context, whole prompts in one batch. What
// the sequences hold is never computed; Engine::fill_cache puts values in its place.
#pragma once

#include <vector>

#include "runtime/engine.h"

namespace weft::runtime {

class StepDriver {
 public:
  // On rank 0; the other ranks follow(). The engine's limits hold every case that is asked for.
  StepDriver(Engine& engine, const planner::ModelSpec& spec, const planner::Limits& limits);

  // Milliseconds of each of n decode steps of `batch` sequences, the last of which sees `context`
  // positions, each before it one less; a few steps before them warm up. With n_in_flight > 1 (of a
  // plan with stages and batches in flight enough) the sequences form so many batches that follow
  // each other through the stages: the time between two tokens of the first one.
  std::vector<double> decode_ms(size_t batch, size_t context, size_t n, size_t n_in_flight = 1);
  // Of each of n prefills of one prompt of `tokens` tokens, until its first token is here; in
  // chunks of `chunk`, of which up to n_in_flight are on their way; 0: as a whole.
  std::vector<double> prefill_ms(size_t tokens, size_t n, size_t chunk = 0, size_t n_in_flight = 1);

  // Id of the batch that was run last: the n timed ones of a call are the last n.
  uint64_t latest_batch() const { return engine_.last_batch(); }

  // KV blocks that such a case takes.
  static size_t decode_blocks(size_t batch, size_t context, size_t n);
  static size_t prefill_blocks(size_t tokens);
  // Positions that n decode steps and those before them take.
  static size_t least_context(size_t n);

 private:
  void begin(Batch& batch);
  void begin_sequence(Batch& batch, size_t slot, size_t n_slots, size_t first_position,
                      size_t n_rows, size_t n_blocks) const;
  void add_tokens(Batch& batch, size_t slot, size_t first, size_t n) const;
  double one_prefill_ms(size_t tokens, size_t chunk, size_t n_in_flight);

  Engine& engine_;
  size_t vocab_;
  std::vector<Batch> batches_;  // [batches in flight]
};

}  // namespace weft::runtime
