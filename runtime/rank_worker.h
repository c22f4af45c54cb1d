// One rank of the pipeline: executes every batch in order and passes on what the next stage, stage
// 0 and rank 0 wait for.
#pragma once

#include <memory>
#include <vector>

#include "parallel/control_channel.h"
#include "runtime/batch.h"
#include "runtime/slots.h"
#include "runtime/stage_backend.h"
#include "runtime/token_results.h"

namespace weft::runtime {

// Time of one rank, summed over batches.
struct StageTimes {
  size_t n_batches = 0;
  double busy_ms = 0;    // computing and exchanging inside the stage
  double wait_ms = 0;    // for the stage before, and for tokens
  size_t n_decodes = 0;  // batches of one token a sequence, among n_batches
  double decode_ms = 0;  // of busy_ms, in them
};

// Ranks of stage 0 that learn tokens by messages: all but the one that samples.
std::vector<int> result_receivers(const RankPlace& place);

class RankWorker {
 public:
  // `results` goes from the sampling rank to stage 0; it and the clock outlive the worker.
  RankWorker(const RankPlace& place, const planner::ModelSpec& spec, const planner::Limits& limits,
             std::unique_ptr<StageBackend> backend, parallel::ControlChannel& results,
             ResultShape result_shape, StepClock* clock = nullptr);

  // Executes one batch: its deltas, this stage's layers, what follows from them.
  void execute(const Batch& batch);

  // Stage 0 only. The next batch's results, in order: waits for them, or (try_) says that they have
  // not come. The reference holds until the next call. Slots learn the tokens here.
  const TokenResults& wait_results();
  const TokenResults* try_results();

  // Waits until all that was sent has left.
  void finish();
  const StageTimes& times() const { return times_; }

 private:
  void catch_up(const Batch& batch);
  const TokenResults& take_in(std::span<const std::byte> message);
  void publish();

  RankPlace place_;
  size_t batches_in_flight_;
  Slots slots_;
  std::unique_ptr<StageBackend> backend_;
  TokenResults results_;
  bool have_local_results_ = false;    // rank 0 samples itself
  parallel::ControlChannel& channel_;  // of results
  uint64_t results_through_ = 0;       // batch id up to which tokens are known here
  std::vector<uint64_t> sampled_in_;   // [max_sequences] latest batch that samples the slot
  StageTimes times_;
  StepClock* clock_;
};

}  // namespace weft::runtime
