// Blocks go round the sequences, so that each sequence's lie apart, as after some hours of serving.
#include "runtime/step_driver.h"

#include <algorithm>
#include <chrono>

namespace weft::runtime {
namespace {

constexpr size_t kWarmUp = 4;

size_t blocks_of(size_t tokens) {
  return (tokens + planner::kKvBlockTokens - 1) / planner::kKvBlockTokens;
}

}  // namespace

StepDriver::StepDriver(Engine& engine, const planner::ModelSpec& spec,
                       const planner::Limits& limits)
    : engine_(engine), vocab_(spec.vocab) {
  batch_.reserve(limits);
}

size_t StepDriver::decode_blocks(size_t batch, size_t context, size_t n) {
  return batch * blocks_of(std::max(context, kWarmUp + n));
}

size_t StepDriver::prefill_blocks(size_t tokens) { return blocks_of(tokens); }

size_t StepDriver::least_context(size_t n) { return kWarmUp + n; }

double StepDriver::run() {
  using Clock = std::chrono::steady_clock;
  ++batch_.id;
  const Clock::time_point start = Clock::now();
  engine_.step(batch_);
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Any tokens do, as long as they differ.
void StepDriver::begin_sequence(size_t slot, size_t n_slots, size_t first_position, size_t n_rows,
                                size_t n_blocks) {
  BatchEntry entry;
  entry.slot = static_cast<int32_t>(slot);
  entry.first_position = static_cast<int32_t>(first_position);
  entry.n_rows = static_cast<int32_t>(n_rows);
  entry.n_blocks = static_cast<int32_t>(n_blocks);
  entry.starts = entry.literal = entry.samples = 1;
  batch_.entries.push_back(entry);
  batch_.starts.emplace_back();
  for (size_t i = 0; i < n_rows; ++i)
    batch_.tokens.push_back(static_cast<int32_t>((7919 * (i + 1) + 104729 * slot) % vocab_));
  for (size_t i = 0; i < n_blocks; ++i)
    batch_.blocks.push_back(static_cast<int32_t>(i * n_slots + slot));
}

std::vector<double> StepDriver::decode_ms(size_t batch, size_t context, size_t n) {
  const size_t n_blocks = decode_blocks(1, context, n);
  const size_t first = context > kWarmUp + n ? context - kWarmUp - n : 0;
  batch_.clear();
  for (size_t slot = 0; slot < batch; ++slot) begin_sequence(slot, batch, first, 1, n_blocks);
  std::vector<double> times;
  for (size_t step = 0; step < kWarmUp + n; ++step) {
    const double ms = run();
    if (step >= kWarmUp) times.push_back(ms);
    batch_.tokens.clear();
    batch_.blocks.clear();
    batch_.starts.clear();
    for (BatchEntry& entry : batch_.entries) {
      ++entry.first_position;
      ++entry.output_index;
      entry.n_blocks = 0;
      entry.starts = entry.literal = 0;
    }
  }
  return times;
}

std::vector<double> StepDriver::prefill_ms(size_t tokens, size_t n) {
  batch_.clear();
  begin_sequence(0, 1, 0, tokens, prefill_blocks(tokens));
  std::vector<double> times;
  for (size_t i = 0; i <= n; ++i) {  // the first warms up
    const double ms = run();
    if (i > 0) times.push_back(ms);
  }
  return times;
}

}  // namespace weft::runtime
