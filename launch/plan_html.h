// The plan's report as one page: no script, no network; readable on paper.
#pragma once

#include <string>

#include "launch/plan_result.h"

namespace weft::launch {

std::string plan_html(const PlanCase& of, const PlanResult& result);

}  // namespace weft::launch
