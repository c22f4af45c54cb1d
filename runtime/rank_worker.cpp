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

RankWorker::RankWorker(const RankPlace& place, const DecoderShape& shape,
                       const StageWeights& weights, const RankLinks& links, kernels::Stream& stream,
                       ResultShape result_shape)
    : place_(place),
      stream_(stream),
      hidden_(shape.spec.hidden),
      batches_in_flight_(shape.limits.batches_in_flight),
      cache_(shape.formats, shape.limits.kv_blocks, shape.layers.size(),
             shape.shard.kv_heads.size(), shape.spec.head_dim),
      slots_(shape.limits, place.samples() ? shape.spec.vocab : 0),
      decoder_(shape, weights, cache_, links.group, stream),
      edges_(place.mesh, place.world_rank, links.edges, links.group, stream,
             shape.limits.max_batch_tokens * shape.spec.hidden, shape.formats.activations),
      channel_(links.results),
      sampled_in_(shape.limits.max_sequences) {
  if (place.last_stage()) sampler_.emplace(shape, weights, links.group, stream, result_shape);
  results_.reserve(shape.limits.max_sequences, result_shape);
}

void RankWorker::execute(const Batch& batch) {
  const Clock::time_point start = Clock::now();
  slots_.apply(batch);
  const kernels::PagedRows rows = slots_.rows();
  double waited = 0;
  if (place_.first_stage()) {
    catch_up(batch);
    waited = milliseconds_since(start);
    decoder_.embed(slots_.ids());
  } else {
    edges_.receive(decoder_.residual(), rows.tokens * hidden_);
    waited = milliseconds_since(start);
  }
  decoder_.forward(rows);
  if (place_.last_stage()) {
    sampler_->sample(batch, decoder_.residual(), slots_, results_);
    if (place_.samples()) publish();
  } else {
    edges_.send(decoder_.residual(), rows.tokens * hidden_);
  }
  times_.n_batches += 1;
  times_.wait_ms += waited;
  const double busy = milliseconds_since(start) - waited;
  times_.busy_ms += busy;
  if (!only_decodes(batch)) return;
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

void RankWorker::finish() { edges_.finish(); }

}  // namespace weft::runtime
