// How long one step may take before a rank counts as stuck: far more than any step needs, yet known
// from the plan, so that a stall ends by itself.
#pragma once

#include <optional>

#include "planner/model_spec.h"
#include "planner/plan.h"

namespace weft::launch {

constexpr double kLeastStepLimitS = 10;

// Seconds; 0: no limit, where `asked` is 0. From the plan's predicted times where it has them and
// CPU ranks of `threads` threads (of the rank that has fewest; 0: ranks on GPUs) could meet them;
// else from the model's size. All ranks compute the same.
double step_limit_s(const planner::ModelSpec& spec, const planner::Plan& plan, size_t threads,
                    std::optional<double> asked);

}  // namespace weft::launch
