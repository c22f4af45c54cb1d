// Where a layout's time goes, part by part: over all its stages, and the edges between them.
#pragma once

#include <string_view>
#include <vector>

#include "launch/plan_case.h"

namespace weft::launch {

struct TimePart {
  std::string_view title;
  double ms = 0;
};

// Of one chunk of a prompt, and of one step of a batch in flight, over all stages of a replica. The
// parts add up to PipelineTimes' sums.
struct Breakdown {
  std::vector<TimePart> prefill;
  std::vector<TimePart> decode;
};
Breakdown breakdown(const PlanCase& of, const planner::Candidate& candidate);

}  // namespace weft::launch
