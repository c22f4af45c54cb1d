// The largest step at a pace that no healthy machine falls below.
#include "launch/step_limit.h"

#include <algorithm>

namespace weft::launch {
namespace {

constexpr double kSlowFlopsAThread = 2e9;  // a core that several processes share
constexpr double kSlowBytesASecond = 1e9;  // weights, from memory that others use too

}  // namespace

// A step waits for all stages before its own, and for the batches that are in them: a whole pass of
// the largest batch through the whole model, once for each batch in flight.
double step_limit_s(const planner::ModelSpec& spec, const planner::Plan& plan, size_t threads,
                    std::optional<double> asked) {
  if (asked) return *asked;
  const auto n_parameters = static_cast<double>(planner::n_parameters(spec));
  const auto rows = static_cast<double>(plan.limits.max_batch_tokens);
  const auto context = static_cast<double>(plan.limits.context);
  const double attention = 4 * rows * context * static_cast<double>(spec.hidden * spec.n_layers);
  const double flops = 2 * n_parameters * rows + attention;
  const double compute_s = flops / (kSlowFlopsAThread * static_cast<double>(threads));
  const double read_s = 2 * n_parameters / kSlowBytesASecond;
  const auto n_in_flight = static_cast<double>(plan.limits.batches_in_flight);
  return std::max(kLeastStepLimitS, (compute_s + read_s) * n_in_flight);
}

}  // namespace weft::launch
