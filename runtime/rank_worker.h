// One rank of the pipeline: executes every batch in order and passes on what the next stage, stage
// 0 and rank 0 wait for.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "parallel/control_channel.h"
#include "parallel/device_mesh.h"
#include "parallel/mpi_session.h"
#include "runtime/batch.h"
#include "runtime/decoder.h"
#include "runtime/kv_cache.h"
#include "runtime/sampler.h"
#include "runtime/slots.h"
#include "runtime/stage_edges.h"
#include "runtime/token_results.h"
#include "runtime/weights.h"

namespace weft::runtime {

// What this rank is in the job.
struct RankPlace {
  parallel::DeviceMesh mesh;
  int world_rank = 0;
  size_t stage = 0;
  int tp_rank = 0;
  bool first_stage() const { return stage == 0; }
  bool last_stage() const { return stage + 1 == mesh.n_stages(); }
  bool samples() const { return last_stage() && tp_rank == 0; }
};

// Time of one rank, summed over batches.
struct StageTimes {
  size_t n_batches = 0;
  double busy_ms = 0;    // computing and exchanging inside the stage
  double wait_ms = 0;    // for the stage before, and for tokens
  size_t n_decodes = 0;  // batches of one token a sequence, among n_batches
  double decode_ms = 0;  // of busy_ms, in them
};

// A rank's ways to the others.
struct RankLinks {
  parallel::Communicator& group;      // this stage
  parallel::Communicator& edges;      // all ranks, for the edges between stages
  parallel::ControlChannel& results;  // from the sampling rank to stage 0
};

// Ranks of stage 0 that learn tokens by messages: all but the one that samples.
std::vector<int> result_receivers(const RankPlace& place);

class RankWorker {
 public:
  // Takes this rank's memory; nothing is communicated. What it is given outlives the worker.
  RankWorker(const RankPlace& place, const DecoderShape& shape, const StageWeights& weights,
             const RankLinks& links, kernels::Stream& stream, ResultShape result_shape);

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
  kernels::Stream& stream_;
  size_t hidden_;
  size_t batches_in_flight_;
  KvCache cache_;
  Slots slots_;
  Decoder decoder_;
  StageEdges edges_;
  std::optional<Sampler> sampler_;
  TokenResults results_;
  bool have_local_results_ = false;    // rank 0 samples itself
  parallel::ControlChannel& channel_;  // of results
  uint64_t results_through_ = 0;       // batch id up to which tokens are known here
  std::vector<uint64_t> sampled_in_;   // [max_sequences] latest batch that samples the slot
  StageTimes times_;
};

}  // namespace weft::runtime
