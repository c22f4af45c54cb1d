// What one rank computes of each batch, on the CPU or on a GPU: the part of a step that knows where
// weights, cache and activations lie.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/device.h"
#include "parallel/communicator.h"
#include "parallel/device_mesh.h"
#include "runtime/batch.h"
#include "runtime/decoder.h"
#include "runtime/slots.h"
#include "runtime/step_clock.h"
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

// A rank's ways to the others of its batches, and who is told where each part of a step begins.
struct BackendLinks {
  parallel::Communicator& group;  // this stage
  parallel::Communicator& edges;  // all ranks, for the edges between stages
  StepClock* clock = nullptr;     // where steps are timed by part
};

class StageBackend {
 public:
  virtual ~StageBackend() = default;

  // Before the first step: what rank 0 has measured of this kind of machine, then the rest on every
  // rank, and whatever makes steps quicker.
  virtual std::string measure() { return {}; }
  virtual void prepare(std::string_view /*choices*/) {}

  // One step, in this order: embed (the first stage) or receive; forward; sample (the last stage)
  // or send. Slots have the batch's deltas.
  virtual void embed(std::span<const int32_t> ids) = 0;
  virtual void receive(size_t tokens) = 0;
  virtual void forward(const Batch& batch, const Slots& slots) = 0;
  // Fills `results` on the rank that samples; the slots there learn the tokens.
  virtual void sample(const Batch& batch, Slots& slots, TokenResults& results) = 0;
  virtual void send(size_t tokens) = 0;

  // Waits until all that was sent has left, and lets go of what holds the links: they may close.
  virtual void finish() = 0;
};

// Takes this rank's memory; nothing is communicated. What it is given outlives the backend.
std::unique_ptr<StageBackend> make_cpu_backend(const RankPlace& place, const DecoderShape& shape,
                                               const StageWeights& weights,
                                               const BackendLinks& links, kernels::Stream& stream,
                                               ResultShape result_shape);

}  // namespace weft::runtime
