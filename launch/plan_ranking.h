// What `weft plan --cluster` says to people: the ranking, the grid, why; layouts side by side.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/plan_result.h"

namespace weft::launch {

// The grid that was searched, and a layout a line, best first: GPUs, times, memory, traffic,
// verdict.
std::string ranking_table(const PlanCase& of, const PlanResult& result);

// What was refused, by how much and what would make it fit; where the time goes in the best and in
// its runner-up; the law of throughput.
std::string explain_text(const PlanCase& of, const PlanResult& result);

// A column a layout: where the time and the bytes go.
std::string compare_table(const PlanCase& of, const std::vector<planner::Candidate>& layouts);

// How a layout stands beside another, which is called `itself`: "best", "+12 % latency", "TTFT 1.30
// times its limit".
std::string standing(const PlanCase& of, const planner::Candidate& other,
                     const planner::Candidate& layout, std::string_view itself);
// "best" of what was searched; of a layout that was given, that it meets the limits.
std::string_view name_of_best(const PlanResult& result);
// "batch 32, 2 in flight, chunk 512".
std::string schedule_text(const planner::Schedule& schedule);
std::string bytes_text(double bytes);
std::string objective_text(const planner::Workload& workload);

}  // namespace weft::launch
