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
  // positions, each before it one less; a few steps before them warm up.
  std::vector<double> decode_ms(size_t batch, size_t context, size_t n);
  // Of each of n prefills of one prompt of `tokens` tokens, until its first token is here.
  std::vector<double> prefill_ms(size_t tokens, size_t n);

  // Id of the batch that was run last: the n timed ones of a call are the last n.
  uint64_t latest_batch() const { return batch_.id; }

  // KV blocks that such a case takes.
  static size_t decode_blocks(size_t batch, size_t context, size_t n);
  static size_t prefill_blocks(size_t tokens);
  // Positions that n decode steps and those before them take.
  static size_t least_context(size_t n);

 private:
  double run();
  void begin_sequence(size_t slot, size_t n_slots, size_t first_position, size_t n_rows,
                      size_t n_blocks);

  Engine& engine_;
  size_t vocab_;
  Batch batch_;
};

}  // namespace weft::runtime
