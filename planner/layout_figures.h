// A layout's own figures, asked of the cost model stage by stage.
#pragma once

#include "planner/search_score.h"

namespace weft::planner {

// Times, memory, traffic and what is served. The layout's shape is taken as given: no check.
Candidate make_candidate(const Space& space, const StageCosts& costs, const Scorer& scorer,
                         const Layout& layout);

// The layout and its stages' memory, no times: what memory_problems() needs.
Candidate memory_only(const StageCosts& costs, const Layout& layout);

// Stages that have no room for the schedule's KV, with their numbers: "stage 3: short 1.20 GiB:
// weights 61.0 + KV 14.1 of 79.2 GiB".
std::vector<std::string> memory_problems(const Space& space, const Candidate& candidate);

}  // namespace weft::planner
