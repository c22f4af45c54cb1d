// Many reasons in one Error: a line for each, so that a user mends them all at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace weft::planner {

// "plan.yaml: reason", or "plan.yaml: 3 problems:\n  - reason\n  - …" with at most 20 of them.
std::string problem_text(std::string_view where, const std::vector<std::string>& problems);

// Throws them as one Error where there are any.
void refuse(std::string_view where, const std::vector<std::string>& problems);

}  // namespace weft::planner
