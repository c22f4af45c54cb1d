// Blocks go round the sequences, so that each sequence's lie apart, as after some hours of serving.
#include "runtime/step_driver.h"

#include <algorithm>
#include <chrono>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWarmUp = 4;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// The batch that follows: each sequence's next position.
void advance(Batch& batch) {
  batch.tokens.clear();
  batch.blocks.clear();
  batch.starts.clear();
  for (BatchEntry& entry : batch.entries) {
    ++entry.first_position;
    ++entry.output_index;
    entry.n_blocks = 0;
    entry.starts = entry.literal = 0;
  }
}

size_t blocks_of(size_t tokens) {
  return (tokens + planner::kKvBlockTokens - 1) / planner::kKvBlockTokens;
}

}  // namespace

StepDriver::StepDriver(Engine& engine, const planner::ModelSpec& spec,
                       const planner::Limits& limits)
    : engine_(engine), vocab_(spec.vocab), batches_(limits.batches_in_flight) {
  for (Batch& batch : batches_) batch.reserve(limits);
}

size_t StepDriver::decode_blocks(size_t batch, size_t context, size_t n) {
  return batch * blocks_of(std::max(context, kWarmUp + n));
}

size_t StepDriver::prefill_blocks(size_t tokens) { return blocks_of(tokens); }

size_t StepDriver::least_context(size_t n) { return kWarmUp + n; }

void StepDriver::begin(Batch& batch) {
  batch.id = engine_.last_batch() + 1;
  engine_.begin_step(batch);
}

// Any tokens do, as long as they differ.
void StepDriver::add_tokens(Batch& batch, size_t slot, size_t first, size_t n) const {
  for (size_t i = first; i < first + n; ++i)
    batch.tokens.push_back(static_cast<int32_t>((7919 * (i + 1) + 104729 * slot) % vocab_));
}

void StepDriver::begin_sequence(Batch& batch, size_t slot, size_t n_slots, size_t first_position,
                                size_t n_rows, size_t n_blocks) const {
  BatchEntry entry;
  entry.slot = static_cast<int32_t>(slot);
  entry.first_position = static_cast<int32_t>(first_position);
  entry.n_rows = static_cast<int32_t>(n_rows);
  entry.n_blocks = static_cast<int32_t>(n_blocks);
  entry.starts = entry.literal = entry.samples = 1;
  batch.entries.push_back(entry);
  batch.starts.emplace_back();
  add_tokens(batch, slot, 0, n_rows);
  for (size_t i = 0; i < n_blocks; ++i)
    batch.blocks.push_back(static_cast<int32_t>(i * n_slots + slot));
}

std::vector<double> StepDriver::decode_ms(size_t batch, size_t context, size_t n,
                                          size_t n_in_flight) {
  WEFT_EXPECT(n_in_flight >= 1 && n_in_flight <= batches_.size() && n_in_flight <= batch);
  const size_t n_blocks = decode_blocks(1, context, n);
  const size_t first = context > kWarmUp + n ? context - kWarmUp - n : 0;
  for (size_t i = 0; i < n_in_flight; ++i) {
    batches_[i].clear();
    const size_t end = (i + 1) * batch / n_in_flight;
    for (size_t slot = i * batch / n_in_flight; slot < end; ++slot)
      begin_sequence(batches_[i], slot, batch, first, 1, n_blocks);
  }
  std::vector<double> times;
  Clock::time_point before = Clock::now();
  for (size_t i = 0; i < n_in_flight; ++i) begin(batches_[i]);
  for (size_t step = 0; step < kWarmUp + n; ++step) {
    for (size_t i = 0; i < n_in_flight; ++i) {
      engine_.end_step();
      if (i == 0) {
        const Clock::time_point now = Clock::now();
        if (step >= kWarmUp) times.push_back(ms_between(before, now));
        before = now;
      }
      if (step + 1 == kWarmUp + n) continue;
      advance(batches_[i]);
      begin(batches_[i]);
    }
  }
  return times;
}

double StepDriver::one_prefill_ms(size_t tokens, size_t chunk, size_t n_in_flight) {
  const size_t n_chunks = (tokens + chunk - 1) / chunk;
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < n_chunks; ++i) {
    if (i >= n_in_flight) engine_.end_step();
    Batch& batch = batches_[i % n_in_flight];
    batch.clear();
    const size_t first = i * chunk, n_rows = std::min(chunk, tokens - first);
    begin_sequence(batch, 0, 1, first, n_rows, i == 0 ? prefill_blocks(tokens) : 0);
    if (i > 0) {
      batch.starts.clear();
      batch.tokens.clear();
      add_tokens(batch, 0, first, n_rows);
    }
    batch.entries.front().starts = i == 0;
    batch.entries.front().samples = i + 1 == n_chunks;
    begin(batch);
  }
  for (size_t i = 0; i < std::min(n_chunks, n_in_flight); ++i) engine_.end_step();
  return ms_between(start, Clock::now());
}

std::vector<double> StepDriver::prefill_ms(size_t tokens, size_t n, size_t chunk,
                                           size_t n_in_flight) {
  WEFT_EXPECT(n_in_flight >= 1 && n_in_flight <= batches_.size());
  std::vector<double> times;
  for (size_t i = 0; i <= n; ++i) {  // the first warms up
    const double ms = one_prefill_ms(tokens, chunk == 0 ? tokens : chunk, n_in_flight);
    if (i > 0) times.push_back(ms);
  }
  return times;
}

}  // namespace weft::runtime
