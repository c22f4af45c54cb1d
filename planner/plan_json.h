// The plan as JSON: the same keys as its YAML, in canonical form (sorted keys, no spaces).
#pragma once

#include <string>

#include "planner/plan.h"

namespace weft::planner {

enum class WithPredicted { no, yes };
std::string to_json(const Plan& plan, WithPredicted predicted);

}  // namespace weft::planner
