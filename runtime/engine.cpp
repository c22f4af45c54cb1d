// Set-up in one order on all ranks, then rank 0's loop and the loop of the others.
#include "runtime/engine.h"

#include <string.h>

#include <algorithm>

#include "parallel/gather.h"
#include "parallel/host_communicator.h"
#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

constexpr int kGroupTag = 1;  // of MPI_Comm_create_group
constexpr int kNodeGroupTag = 2;
constexpr int kEdgesTag = 3;

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
      stream_(pool_),
      place_(place_of(plan, session.rank())),
      shape_(shape_of(spec, plan, place_)),
      watch_(options.watch),
      drain_s_(options.drain_s) {
  connect(plan, options.results);
  load_unless_drained([&] { load(plan, source, options.progress); });
  parallel::agree(session, [&] {
    worker_.emplace(place_, shape_, weights_, RankLinks{*group_, *edges_, *results_}, stream_,
                    options.results);
    batch_.reserve(plan.limits);
  });
}

// All groups and channels, in one order on all ranks.
void Engine::connect(const planner::Plan& plan, ResultShape result_shape) {
  using parallel::make_host_communicator;
  const planner::Limits& limits = plan.limits;
  const std::vector<int> all = all_ranks(session_.size());
  const size_t partial_bytes = limits.max_batch_tokens * shape_.spec.hidden * sizeof(float);
  group_ = make_host_communicator(session_, place_.mesh.ranks_of(place_.stage), kGroupTag,
                                  partial_bytes);
  node_group_ =
      make_host_communicator(session_, neighbours(session_, place_), kNodeGroupTag, sizeof(float));
  edges_ = make_host_communicator(session_, all, kEdgesTag, 0);
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

void Engine::load(const planner::Plan& plan, TensorSource& source, const LoadProgress& progress) {
  const LoadProgress report = [&](size_t done, size_t total) {
    if (watch_.n_drains() > 0) throw run_error("asked to end while weights were loaded");
    if (progress) progress(done, total);
  };
  std::vector<size_t> tp_ranks;
  for (int rank : neighbours(session_, place_))
    tp_ranks.push_back(static_cast<size_t>(place_.mesh.tp_rank_of(rank)));
  weights_ =
      load_weights(source, shape_.spec, plan, place_.stage, static_cast<size_t>(place_.tp_rank),
                   *node_group_, tp_ranks, stream_, report, &load_report_);
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

void Engine::execute(const Batch& batch) {
  const parallel::WatchedStep step(watch_);
  worker_->execute(batch);
}

// Part of a step: of those that the other stages run for it.
const TokenResults& Engine::wait_results() {
  const parallel::WatchedStep step(watch_);
  return worker_->wait_results();
}

void Engine::announce(const Batch& batch) {
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

void Engine::close() {
  worker_->finish();
  results_->close();
  batches_->close();
  edges_->close();
  node_group_->close();
  group_->close();
}

}  // namespace weft::runtime
