// A layout given by hand, on a cluster: where its stages lie, and the best schedule of the grid.
#pragma once

#include <string>

#include "launch/plan_case.h"

namespace weft::launch {

// "31x8,31x8": LAYERSxTP as everywhere; "2*31x8,31x8": two replicas; "62x8|31x4,31x4": a group that
// prefills and one that decodes. Stages fill the nodes in the cluster's order, as many of a replica
// in a node as it has GPUs for. Throws Error naming the bad part.
planner::Layout parse_placed(const std::string& text, const PlanCase& of);
planner::Layout place(const std::vector<planner::StageLayout>& stages, const PlanCase& of);

// Schedules of the grid, but for what `fixed` fixes (batch, batches in flight, chunk): the best by
// the objective. Throws Error where no schedule has room, with the numbers of the smallest.
planner::Candidate predict(const PlanCase& of, planner::Layout layout, const PlanOptions& fixed);

}  // namespace weft::launch
