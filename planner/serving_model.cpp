#include "planner/serving_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/cost_model.h"
#include "planner/pipeline_model.h"
#include "planner/plan.h"

namespace weft::planner {
namespace {

// Prefill steps of others that a request waits for, of B that follow each other.
double waits(double wait_steps, double batch) {
  return wait_steps * std::max(0.0, 1 - (wait_steps + 1) / (2 * std::max(1.0, batch)));
}

}  // namespace

size_t mean_kv_blocks(const ServedRequest& request) {
  const size_t tokens = request.prompt_tokens + request.output_tokens / 2;
  return std::max<size_t>(1, (tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

Served ContinuousBatching::served(const PipelineTimes& times, const Schedule& schedule,
                                  double concurrency) const {
  const double n = static_cast<double>(std::max<size_t>(1, request_.output_tokens));
  const size_t chunks = prompt_chunks(request_.prompt_tokens, schedule.prefill_chunk);
  const double places = static_cast<double>(std::min(schedule.batch, habits_.batch_limit));
  const double batch = std::max(0.0, std::min(concurrency, places));
  const double with_kv = static_cast<double>(times.kv_blocks / mean_kv_blocks(request_));

  Served served;
  served.concurrency = std::min(batch, with_kv);
  served.saturated = served.concurrency < concurrency;
  if (served.concurrency <= 0) {
    served.ttft_ms = served.tpot_ms = std::numeric_limits<double>::infinity();
    return served;
  }
  const double prompt_ms = static_cast<double>(chunks) * times.prefill_max_ms;
  const double period_ms = decode_period_ms(times, schedule.batches_in_flight);
  const double burst = habits_.burst_share / 2;
  const double others_ms = prompt_ms * std::max(0.0, batch - 1);
  double ttft = prefill_latency_ms(times, chunks) + prompt_ms * waits(habits_.wait_steps, batch) +
                others_ms * burst;
  // Groups of their own never hold up a decode step.
  if (!times.separate_groups) ttft += period_ms * habits_.first_token_steps;
  const bool held_up = !times.separate_groups && n > 1;
  served.tpot_ms = period_ms + (held_up ? others_ms * (1 - burst) / (n - 1) : 0);
  double per_ms = served.concurrency / (ttft + (n - 1) * served.tpot_ms);
  if (prompt_ms > 0) per_ms = std::min(per_ms, 1 / prompt_ms);
  served.tokens_per_s = per_ms * n * 1000;
  served.ttft_ms = ttft + (concurrency - served.concurrency) / per_ms;
  return served;
}

}  // namespace weft::planner
