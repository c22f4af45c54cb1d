// The layouts of `weft bench scale`: those of a number of ranks, and those given.
#pragma once

#include <string>
#include <vector>

#include "planner/manual_plan.h"

namespace weft::launch {

using StageLayouts = std::vector<planner::StageLayout>;

// "6x1", "3x2,3x2" as everywhere.
std::string layout_text(const StageLayouts& layout);
size_t n_ranks(const StageLayouts& layout);

// `list`: layouts, or "all", with blanks between them. "all" is every TP x PP whose product divides
// the ranks, balanced, of the widths that invariant numerics allow. One rank, which others are
// measured by, comes first, whether it was named or not; then by ranks, then in order. Throws Error
// with every layout that can't be and why.
std::vector<StageLayouts> scale_layouts(const std::string& list, const planner::ModelSpec& spec,
                                        size_t n_job_ranks);

}  // namespace weft::launch
