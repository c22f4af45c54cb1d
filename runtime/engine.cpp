// Set-up in one order on all ranks, then rank 0's loop and the loop of the others.
#include "runtime/engine.h"

#include <spdlog/spdlog.h>
#include <string.h>

#include <algorithm>

#include "parallel/gather.h"
#include "parallel/host_communicator.h"
#include "planner/memory_model.h"
#include "runtime/base/error.h"
#include "runtime/gpu_backend.h"
#include "runtime/gpu_synthesis.h"
#include "runtime/gpu_weights.h"

namespace weft::runtime {
namespace {

constexpr int kGroupTag = 1;  // of MPI_Comm_create_group; a GPU's take the next one too
constexpr int kNodeGroupTag = 3;
constexpr int kEdgesTag = 4;
constexpr size_t kPartBytes = 4096;  // parts of a gather are rounded up to whole elements

RankPlace place_of(const planner::Plan& plan, int rank) {
  RankPlace place;
  place.mesh = parallel::make_mesh(plan);
  place.world_rank = rank;
  place.stage = place.mesh.stage_of(rank);
  place.tp_rank = place.mesh.tp_rank_of(rank);
  return place;
}

DecoderShape shape_of(const planner::ModelSpec& spec, const planner::Plan& plan,
                      const RankPlace& place) {
  const planner::Stage& stage = plan.replicas.front().stages[place.stage];
  DecoderShape shape;
  shape.spec = spec;
  shape.shard = planner::shard_shapes(spec, stage.tp, static_cast<size_t>(place.tp_rank));
  shape.formats = plan.formats;
  shape.limits = plan.limits;
  shape.layers = stage.layers;
  shape.invariant = plan.numerics == planner::Numerics::invariant;
  return shape;
}

std::optional<kernels::GpuStream> stream_on(const std::optional<int>& gpu) {
  if (!gpu) return std::nullopt;
  kernels::select_gpu(*gpu);
  return kernels::GpuStream();
}

std::vector<int> all_ranks(int n) {
  std::vector<int> ranks;
  for (int i = 0; i < n; ++i) ranks.push_back(i);
  return ranks;
}

// Ranks of this rank's stage that share its host.
std::vector<int> neighbours(const parallel::MpiSession& session, const RankPlace& place) {
  std::vector<int> ranks = place.mesh.ranks_of(place.stage);
  const std::vector<int>& node_of = session.node_of();
  std::erase_if(ranks,
                [&](int rank) { return node_of[static_cast<size_t>(rank)] != session.node(); });
  return ranks;
}

}  // namespace

Engine::Engine(const parallel::MpiSession& session, const planner::ModelSpec& spec,
               const planner::Plan& plan, TensorSource& source, const EngineOptions& options)
    : session_(session),
      pool_(options.n_threads),
      gpu_stream_(stream_on(options.gpu)),
      stream_(pool_, gpu_stream_ ? gpu_stream_->get() : nullptr),
      place_(place_of(plan, session.rank())),
      shape_(shape_of(spec, plan, place_)),
      watch_(options.watch),
      drain_s_(options.drain_s) {
  connect(plan, options);
  if (gpu_stream_) parallel::agree(session, [&] { take_gpu_memory(plan, options.results); });
  load_unless_drained([&] { load(plan, source, options); });
  if (options.clocks) clock_.emplace(stream_.gpu());
  std::unique_ptr<StageBackend> made;
  std::string choices;
  parallel::agree(session, [&] {
    made = backend(options.results, options.graphs);
    batch_.reserve(plan.limits);
    if (session.rank() == 0) choices = made->measure();
  });
  choices = parallel::broadcast_text(session, std::move(choices));
  parallel::agree(session, [&] { made->prepare(choices); });
  worker_.emplace(place_, spec, plan.limits, std::move(made), *results_, options.results,
                  clock_ ? &*clock_ : nullptr);
}

// Of this rank's memory, be it the host's or a GPU's. Agreed: where one group of the job can't have
// what it needs, no rank goes on.
std::unique_ptr<parallel::Communicator> Engine::communicator(std::span<const int> ranks, int tag,
                                                             size_t sum_bytes,
                                                             size_t exchange_bytes,
                                                             const EngineOptions& options) {
  if (!gpu_stream_) return parallel::make_host_communicator(session_, ranks, tag, sum_bytes);
  parallel::GpuCommunicator made;
  parallel::agree(session_, [&] {
    parallel::GpuCommunicatorOptions wanted;
    wanted.transport = options.transport;
    wanted.shares_gpu = options.shares_gpu;
    wanted.sum_bytes = sum_bytes;
    wanted.staging = {sum_bytes + kPartBytes, exchange_bytes};
    made = parallel::make_gpu_communicator(session_, ranks, tag, wanted, stream_);
  });
  if (ranks.size() > 1) spdlog::debug("{} ranks: {}", ranks.size(), made.words);
  return std::move(made.communicator);
}

// All groups and channels, in one order on all ranks.
void Engine::connect(const planner::Plan& plan, const EngineOptions& options) {
  const ResultShape result_shape = options.results;
  const planner::Limits& limits = plan.limits;
  const std::vector<int> all = all_ranks(session_.size());
  const auto n_ranks = static_cast<size_t>(session_.size());
  const size_t partial_bytes = limits.max_batch_tokens * shape_.spec.hidden * sizeof(float);
  const size_t logit_bytes = place_.last_stage() ? limits.max_sequences * shape_.shard.tp *
                                                       shape_.shard.vocab.size() * sizeof(float)
                                                 : 0;
  group_ = communicator(place_.mesh.ranks_of(place_.stage), kGroupTag, partial_bytes, logit_bytes,
                        options);
  node_group_ = parallel::make_host_communicator(session_, neighbours(session_, place_),
                                                 kNodeGroupTag, sizeof(float));
  edges_ = communicator(all, kEdgesTag, 0, partial_bytes + 64 * n_ranks, options);
  const size_t depth = limits.batches_in_flight + 1;
  batches_.emplace(session_, 0, std::span(all).subspan(1), Batch::max_bytes(limits), depth);
  results_.emplace(session_, place_.mesh.stages.back().first, result_receivers(place_),
                   TokenResults::max_bytes(limits.max_sequences, result_shape), depth);
}

// A signal may have reached one rank or all; a rank that hears of none fails because others do.
void Engine::load_unless_drained(const std::function<void()>& load) {
  try {
    parallel::agree(session_, load);
  } catch (const parallel::AgreedError&) {
    const std::vector<int> signals = parallel::gather(session_, watch_.drain_signal());
    const int signal_number = *std::max_element(signals.begin(), signals.end());
    if (signal_number == 0) throw;
    const char* name = sigabbrev_np(signal_number);
    throw parallel::AgreedError(
        fmt::format("ended early by SIG{} while weights were loaded: no prompt was begun",
                    name == nullptr ? "?" : name),
        0);
  }
}

// Refuses with the parts before anything is allocated.
void Engine::take_gpu_memory(const planner::Plan& plan, ResultShape result_shape) {
  gpu_parts_ = gpu_memory_parts(place_, shape_, plan, *group_, result_shape, stream_);
  const size_t free_bytes = kernels::gpu_memory().free_bytes;
  if (gpu_parts_.total() > free_bytes)
    throw input_error("{}", planner::shortage_text(place_.stage, gpu_parts_, free_bytes));
  arena_ = GpuArena(gpu_parts_.total());
}

void Engine::load(const planner::Plan& plan, TensorSource& source, const EngineOptions& options) {
  const LoadProgress report = [&](size_t done, size_t total) {
    if (watch_.n_drains() > 0) throw run_error("asked to end while weights were loaded");
    if (options.progress) options.progress(done, total);
  };
  std::vector<size_t> tp_ranks;
  for (int rank : neighbours(session_, place_))
    tp_ranks.push_back(static_cast<size_t>(place_.mesh.tp_rank_of(rank)));
  const auto tp_rank = static_cast<size_t>(place_.tp_rank);
  weights_ = gpu_stream_
                 ? load_gpu_weights(source, shape_.spec, plan, place_.stage, tp_rank, *node_group_,
                                    tp_ranks, stream_, arena_, report, &load_report_)
                 : load_weights(source, shape_.spec, plan, place_.stage, tp_rank, *node_group_,
                                tp_ranks, stream_, report, &load_report_, options.map_files);
}

std::unique_ptr<StageBackend> Engine::backend(ResultShape result_shape, bool graphs) {
  const BackendLinks links{*group_, *edges_, clock_ ? &*clock_ : nullptr};
  if (gpu_stream_)
    return make_gpu_backend(place_, shape_, weights_, links, stream_, result_shape, arena_, graphs);
  return make_cpu_backend(place_, shape_, weights_, links, stream_, result_shape);
}

void Engine::drive(Scheduler& scheduler, const OnToken& on_token) {
  Drain drain(watch_, drain_s_);
  for (;;) {
    if (drain.asked()) drain.cuts() ? scheduler.cancel_idle() : scheduler.cancel_waiting();
    if (scheduler.finished()) return;
    if (const TokenResults* results = worker_->try_results()) {
      take_in(scheduler, on_token, drain, *results);
    } else if (scheduler.next(batch_)) {
      announce(batch_);
      execute(batch_);
    } else {
      WEFT_EXPECT(scheduler.n_in_flight() > 0);  // else nothing could ever start
      take_in(scheduler, on_token, drain, wait_results());
    }
  }
}

void Engine::take_in(Scheduler& scheduler, const OnToken& on_token, const Drain& drain,
                     const TokenResults& results) {
  scheduler.apply(results, [&](size_t sequence, size_t row) {
    const FinishReason asked = on_token(sequence, results, row);
    return asked == FinishReason::none && drain.cuts() ? FinishReason::cancelled : asked;
  });
}

// What fails here leaves peers' kernels waiting for this rank's and its own for theirs: freeing the
// GPU's memory would wait for them in turn.
template <class Work>
decltype(auto) Engine::or_abort(Work work) {
  try {
    return work();
  } catch (...) {
    group_->abort();
    edges_->abort();
    throw;
  }
}

void Engine::execute(const Batch& batch) {
  const parallel::WatchedStep step(watch_);
  or_abort([&] { worker_->execute(batch); });
}

// Part of a step: of those that the other stages run for it.
const TokenResults& Engine::wait_results() {
  const parallel::WatchedStep step(watch_);
  return worker_->wait_results();
}

void Engine::announce(const Batch& batch) {
  if (!batch.last) last_batch_ = batch.id;
  parallel::ControlSender& sender = batches_->sender();
  sender.send(batch.encode(sender.buffer()));
}

void Engine::follow() {
  for (;;) {
    batch_.decode(batches_->receiver().wait());
    batches_->receiver().release();
    if (batch_.last) return;
    execute(batch_);
  }
}

void Engine::stop_followers() {
  batch_.clear();
  batch_.last = true;
  announce(batch_);
}

void Engine::begin_step(const Batch& batch) {
  announce(batch);
  execute(batch);
}

const TokenResults& Engine::step(const Batch& batch) {
  begin_step(batch);
  return end_step();
}

// The cache's part of the arena follows the weights'.
void Engine::fill_cache() {
  if (!gpu_stream_) return;
  const size_t n = gpu_parts_.kv / dtype_bytes(shape_.formats.kv_key);
  make_noise_on_gpu(1, arena_.data() + gpu_parts_.weights, n, shape_.formats.kv_key, stream_);
  gpu_stream_->synchronise();
}

void Engine::close() {
  or_abort([&] { worker_->finish(); });
  results_->close();
  batches_->close();
  edges_->close();
  node_group_->close();
  group_->close();
}

}  // namespace weft::runtime
