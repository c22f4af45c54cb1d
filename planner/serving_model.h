// What users of one replica measure under continuous batching, in closed form.
//
// A closed loop: a request that ends is followed by the next. While one request lives, each of the
// B - 1 others that are served at once prefills its prompt once, and a prefill step holds up all
// others. So, with W = n_chunks · max t the time that the slowest stage gives one prompt, D the
// decode period, n output tokens:
//   TTFT = prefill latency + W · waits + D · first_token_steps + W · (B - 1) · burst / 2
//   TPOT = D + W · (B - 1) · (1 - burst / 2) / (n - 1)
// `burst` is the share of requests that arrive with all others at once and queue behind each other.
// What they wait before their first token they are not held up after it. `waits`: requests of equal
// length end one after another and meet their predecessors' prefill: wait_steps of them, fewer for
// the first ones: waits = w · (1 - (w + 1) / 2B).
//
// Where KV holds fewer than are asked for, the others queue: TTFT grows by the queue over the rate.
#pragma once

#include "planner/engine_profile.h"
#include "planner/stage_cost.h"

namespace weft::planner {

struct ServedRequest {
  size_t prompt_tokens = 1;
  size_t output_tokens = 1;
};

// KV blocks that a sequence holds, in the mean over its life.
size_t mean_kv_blocks(const ServedRequest& request);

class ContinuousBatching final : public ServingModel {
 public:
  ContinuousBatching(const ServedRequest& request, const EngineHabits& habits)
      : request_(request), habits_(habits) {}

  // No token at all (infinite times) where not one sequence fits.
  Served served(const PipelineTimes& times, const Schedule& schedule,
                double concurrency) const override;

 private:
  ServedRequest request_;
  EngineHabits habits_;
};

}  // namespace weft::planner
