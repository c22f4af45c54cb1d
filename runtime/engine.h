// The whole of a job on one rank, from a plan to tokens: groups, weights, cache, and the loop that
// rank 0 drives.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "parallel/communicator.h"
#include "parallel/control_channel.h"
#include "parallel/gpu_communicator.h"
#include "parallel/guardian_page.h"
#include "parallel/mpi_session.h"
#include "planner/plan.h"
#include "runtime/drain.h"
#include "runtime/gpu_arena.h"
#include "runtime/rank_worker.h"
#include "runtime/scheduler.h"
#include "runtime/tensor_source.h"
#include "runtime/weights.h"

namespace weft::runtime {

struct EngineOptions {
  size_t n_threads = 1;  // of this rank
  ResultShape results;   // what comes beside tokens
  LoadProgress progress;
  parallel::StepWatch watch;  // the guardian's eye on each step
  double drain_s = 20;        // from a drain's signal to the end
  std::optional<int> gpu =
      std::nullopt;         // CUDA's number of the one that this rank takes; none: the CPU
  bool shares_gpu = false;  // with other ranks
  parallel::GpuTransport transport = parallel::GpuTransport::automatic;
  bool graphs = true;     // on a GPU: decode steps are captured
  bool map_files = true;  // on the CPU: see load_weights
  bool clocks = false;    // each part of a step is timed; then without graphs
};

class Engine {
 public:
  // A collective of all ranks; the plan and the spec have no problems() and the plan's world size
  // is the session's. Where a rank can't load or lacks memory, all throw the same AgreedError;
  // where a signal asks the job to end meanwhile, an AgreedError with status 0.
  Engine(const parallel::MpiSession& session, const planner::ModelSpec& spec,
         const planner::Plan& plan, TensorSource& source, const EngineOptions& options);

  // Told each token of a sequence right after it was sampled: results hold it in `row`. Answers why
  // the sequence ends there, or none.
  using OnToken =
      std::function<FinishReason(size_t sequence, const TokenResults& results, size_t row)>;

  // Rank 0: runs until every sequence of the scheduler has finished, or been cancelled because a
  // signal asked the job to end.
  void drive(Scheduler& scheduler, const OnToken& on_token);
  // The other ranks: execute batches until rank 0 sends the last one.
  void follow();
  // Rank 0: tells the others to leave follow().
  void stop_followers();
  // Rank 0, instead of drive(), for measurements: one batch on all ranks, until its tokens are
  // here. Batches are numbered on from last_batch().
  const TokenResults& step(const Batch& batch);
  // The same in two halves, so that several batches are in flight: as many as the plan's limit, and
  // one where the plan has one stage. Results come in the batches' order.
  void begin_step(const Batch& batch);
  const TokenResults& end_step() { return wait_results(); }
  uint64_t last_batch() const { return last_batch_; }
  // On a GPU: fills the cache with values like keys and values, so that attention over positions
  // that were never computed takes the time and the numbers that it would. Nothing on the CPU.
  void fill_cache();

  // Ends communication in order, on all ranks.
  void close();

  const LoadReport& load_report() const { return load_report_; }
  size_t n_threads() const { return pool_.n_threads(); }
  // The signal that cut drive() short, or 0.
  int drained_by() const { return watch_.drain_signal(); }
  const StageTimes& times() const { return worker_->times(); }
  // Of this rank's batches, with `clocks`.
  const std::vector<PartSpan>& spans() const { return clock_->spans(); }
  // What this rank holds of its GPU; nothing on the CPU.
  const planner::MemoryParts& gpu_memory() const { return gpu_parts_; }

 private:
  void connect(const planner::Plan& plan, const EngineOptions& options);
  std::unique_ptr<parallel::Communicator> communicator(std::span<const int> ranks, int tag,
                                                       size_t sum_bytes, size_t exchange_bytes,
                                                       const EngineOptions& options);
  void load_unless_drained(const std::function<void()>& load);
  void take_gpu_memory(const planner::Plan& plan, ResultShape result_shape);
  void load(const planner::Plan& plan, TensorSource& source, const EngineOptions& options);
  std::unique_ptr<StageBackend> backend(ResultShape result_shape, bool graphs);
  void take_in(Scheduler& scheduler, const OnToken& on_token, const Drain& drain,
               const TokenResults& results);
  void announce(const Batch& batch);
  void execute(const Batch& batch);
  template <class Work>
  decltype(auto) or_abort(Work work);
  const TokenResults& wait_results();

  const parallel::MpiSession& session_;
  kernels::ThreadPool pool_;
  std::optional<kernels::GpuStream> gpu_stream_;
  kernels::Stream stream_;
  RankPlace place_;
  DecoderShape shape_;
  std::unique_ptr<parallel::Communicator> group_;
  std::unique_ptr<parallel::Communicator> node_group_;  // this stage's ranks on this host
  std::unique_ptr<parallel::Communicator> edges_;
  std::optional<parallel::ControlChannel> batches_;  // from rank 0 to all others
  std::optional<parallel::ControlChannel> results_;  // from the sampling rank to stage 0
  GpuArena arena_;
  planner::MemoryParts gpu_parts_;
  StageWeights weights_;
  LoadReport load_report_;
  std::optional<StepClock> clock_;
  std::optional<RankWorker> worker_;
  parallel::StepWatch watch_;
  double drain_s_;
  Batch batch_;
  uint64_t last_batch_ = 0;  // id
};

}  // namespace weft::runtime
