// A healthy pass, many times over: by the plan's own prediction, or where that says nothing of this
// machine, at a pace that none falls below.
#include "launch/step_limit.h"

#include <algorithm>

namespace weft::launch {
namespace {

constexpr double kSlowFlopsAThread = 2e9;  // a core that several processes share
constexpr double kSlowGpuFlops = 1e12;
constexpr double kSlowBytesASecond = 1e9;  // weights, from memory that others use too
// No core multiplies faster: a plan that counts on more was made for other machines than these.
constexpr double kMostFlopsAThread = 300e9;
// Ranks may share cores, batches may be larger and contexts longer than those that were priced.
constexpr double kTimesPredicted = 20;

// Of the model's products and attention over `rows` tokens.
double pass_flops(const planner::ModelSpec& spec, double rows, double context) {
  const auto n_parameters = static_cast<double>(planner::n_parameters(spec));
  return 2 * n_parameters * rows +
         4 * rows * context * static_cast<double>(spec.hidden * spec.n_layers);
}

// A whole pass of the largest batch in the machine's slowest hour.
double slow_pass_s(const planner::ModelSpec& spec, const planner::Plan& plan, size_t threads) {
  const double flops = pass_flops(spec, static_cast<double>(plan.limits.max_batch_tokens),
                                  static_cast<double>(plan.limits.context));
  const double read_bytes = 2 * static_cast<double>(planner::n_parameters(spec));
  const double rate =
      threads == 0 ? kSlowGpuFlops : kSlowFlopsAThread * static_cast<double>(threads);
  return flops / rate + read_bytes / kSlowBytesASecond;
}

// As the plan predicts it, a batch of several chunks included; none where ranks of `threads`
// threads can't be what it was predicted for.
std::optional<double> predicted_pass_s(const planner::ModelSpec& spec, const planner::Plan& plan,
                                       size_t threads) {
  if (!plan.predicted.speed) return std::nullopt;
  double chunk_s = 0, decode_s = 0;
  for (const planner::StageSpeed& stage : plan.predicted.speed->stages) {
    chunk_s += stage.prefill_ms * 1e-3;
    decode_s += stage.decode_ms * 1e-3;
  }
  const auto chunk = static_cast<double>(std::max<size_t>(1, plan.limits.prefill_chunk));
  size_t widest = 1;
  for (const planner::Stage& stage : plan.replicas.front().stages)
    widest = std::max(widest, stage.tp * stage.dp);
  const double most = kMostFlopsAThread * static_cast<double>(threads * widest);
  if (chunk_s <= 0) return std::nullopt;
  if (threads > 0 && pass_flops(spec, chunk, 0) / chunk_s > most) return std::nullopt;
  const double chunks = std::max(1.0, static_cast<double>(plan.limits.max_batch_tokens) / chunk);
  return chunk_s * chunks + decode_s;
}

}  // namespace

// A step waits for all stages before its own, and for the batches that are in them: a whole pass
// through the model, once for each batch in flight.
double step_limit_s(const planner::ModelSpec& spec, const planner::Plan& plan, size_t threads,
                    std::optional<double> asked) {
  if (asked) return *asked;
  const auto n_in_flight = static_cast<double>(plan.limits.batches_in_flight);
  const std::optional<double> predicted = predicted_pass_s(spec, plan, threads);
  const double pass_s = predicted ? kTimesPredicted * *predicted : slow_pass_s(spec, plan, threads);
  return std::max(kLeastStepLimitS, pass_s * n_in_flight);
}

}  // namespace weft::launch
