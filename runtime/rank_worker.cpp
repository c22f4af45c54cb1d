// One rank's step: deltas, tokens or the edge's rows, layers, then the edge or the sampler.
#include "runtime/rank_worker.h"

#include <algorithm>
#include <chrono>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool only_decodes(const Batch& batch) {
  return std::none_of(batch.entries.begin(), batch.entries.end(),
                      [](const BatchEntry& entry) { return entry.literal != 0; });
}

}  // namespace

std::vector<int> result_receivers(const RankPlace& place) {
  std::vector<int> ranks = place.mesh.ranks_of(0);
  std::erase(ranks, place.mesh.stages.back().first);
  return ranks;
}

RankWorker::RankWorker(const RankPlace& place, const planner::ModelSpec& spec,
                       const planner::Limits& limits, std::unique_ptr<StageBackend> backend,
                       parallel::ControlChannel& results, ResultShape result_shape,
                       StepClock* clock)
    : place_(place),
      batches_in_flight_(limits.batches_in_flight),
      slots_(limits, place.samples() ? spec.vocab : 0),
      backend_(std::move(backend)),
      channel_(results),
      sampled_in_(limits.max_sequences),
      clock_(clock) {
  results_.reserve(limits.max_sequences, result_shape);
}

void RankWorker::execute(const Batch& batch) {
  const Clock::time_point start = Clock::now();
  mark(clock_, StepPart::host);
  slots_.apply(batch);
  const size_t tokens = slots_.rows().tokens;
  double waited = 0;
  if (place_.first_stage()) {
    catch_up(batch);
    waited = milliseconds_since(start);
    backend_->embed(slots_.ids());
  } else {
    mark(clock_, StepPart::receive);
    backend_->receive(tokens);
    waited = milliseconds_since(start);
  }
  backend_->forward(batch, slots_);
  if (place_.last_stage()) {
    backend_->sample(batch, slots_, results_);
    mark(clock_, StepPart::host);
    if (place_.samples()) publish();
  } else {
    mark(clock_, StepPart::send);
    backend_->send(tokens);
  }
  times_.n_batches += 1;
  times_.wait_ms += waited;
  const double busy = milliseconds_since(start) - waited;
  times_.busy_ms += busy;
  const bool decodes = only_decodes(batch);
  if (clock_ != nullptr) clock_->end(batch.id, decodes);
  if (!decodes) return;
  times_.n_decodes += 1;
  times_.decode_ms += busy;
}

// Waits for the tokens that this batch's rows continue from, then notes what it will sample.
void RankWorker::catch_up(const Batch& batch) {
  uint64_t needed = 0;
  for (const BatchEntry& entry : batch.entries) {
    uint64_t& sampled = sampled_in_[static_cast<size_t>(entry.slot)];
    if (!entry.literal) needed = std::max(needed, sampled);
    if (entry.samples) sampled = batch.id;
  }
  if (place_.samples()) return;  // the slots know already
  // Never more unread messages than the channel holds: batch n starts after the tokens of n − M.
  if (batch.id > batches_in_flight_) needed = std::max(needed, batch.id - batches_in_flight_);
  while (results_through_ < needed) take_in(channel_.receiver().wait());
}

// The sampling rank's tokens go to every rank of the first stage, rank 0 among them.
void RankWorker::publish() {
  have_local_results_ = place_.world_rank == 0;
  parallel::ControlSender& sender = channel_.sender();
  sender.send(results_.encode(sender.buffer()));
}

const TokenResults& RankWorker::take_in(std::span<const std::byte> message) {
  results_.decode(message);
  channel_.receiver().release();
  results_through_ = results_.batch;
  for (size_t i = 0; i < results_.size(); ++i) slots_.set_last(results_.slot[i], results_.token[i]);
  return results_;
}

const TokenResults& RankWorker::wait_results() {
  if (!place_.samples()) return take_in(channel_.receiver().wait());
  WEFT_EXPECT(have_local_results_);
  have_local_results_ = false;
  return results_;
}

const TokenResults* RankWorker::try_results() {
  if (!place_.samples()) {
    const auto message = channel_.receiver().test();
    return message ? &take_in(*message) : nullptr;
  }
  if (!have_local_results_) return nullptr;
  return &wait_results();
}

void RankWorker::finish() { backend_->finish(); }

}  // namespace weft::runtime
