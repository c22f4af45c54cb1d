// Times of steps alone, from the same cost model that plans are searched with: no queue, no other
// requests.
#include "launch/scale_prediction.h"

#include <algorithm>

#include "launch/plan_given.h"
#include "planner/cost_model.h"
#include "planner/pipeline_model.h"

namespace weft::launch {

ScaleSchedule schedule_of(const ScaleCase& of, size_t n_stages, size_t prefill_chunk) {
  if (!of.prefill) return {std::min(n_stages, of.batch), prefill_chunk};
  return {n_stages, n_stages == 1 ? of.tokens : std::min(prefill_chunk, of.tokens)};
}

// A request of the case alone: decode steps see its prompt and half its output.
double predicted_ms(const ScaleSetting& setting, const planner::ModelSpec& spec,
                    const StageLayouts& layout, const ScaleCase& of,
                    const ScaleSchedule& schedule) {
  SearchOptions search;
  search.machine_profile = setting.machine_profile;
  const size_t output = of.prefill ? 1 : 2;
  search.prompt_tokens = std::max<size_t>(1, std::min(of.tokens, spec.context - output));
  search.output_tokens = output;
  search.concurrency = of.batch;
  const PlanCase priced =
      make_case_on(setting.cluster, search, setting.plan, spec, setting.configs);
  PlanOptions fixed;
  fixed.max_sequences = of.batch;
  fixed.batches_in_flight = of.prefill ? size_t{1} : schedule.batches_in_flight;
  fixed.prefill_chunk = schedule.prefill_chunk;
  const planner::Candidate found = predict(priced, place(layout, priced), fixed);
  return of.prefill ? planner::prefill_latency_ms(
                          found.times, planner::prompt_chunks(of.tokens, schedule.prefill_chunk))
                    : planner::decode_period_ms(found.times, schedule.batches_in_flight);
}

}  // namespace weft::launch
