// What `weft plan --cluster --json` prints: one object a call, in one line.
#pragma once

#include <string>
#include <vector>

#include "launch/plan_result.h"

namespace weft::launch {

// {"plan", "plan_sha256", "layout", "world_size", "predicted": {"ttft_ms", "tpot_ms",
// "tokens_per_s", "latency_ms", "memory": [{"stage", part: bytes, …, "total", "limit"}], "time",
// "extrapolated"}, "ranked", "front", "refused", "grid", "proved", "gap", "verdict", "law",
// "not_executed", "search_ms"}. What is not finite (no request is ever served) is null.
std::string search_json(const PlanCase& of, const PlanResult& result);

// {"compared": [a layout, with "time" and "memory"]}.
std::string compare_json(const PlanCase& of, const std::vector<planner::Candidate>& layouts);

}  // namespace weft::launch
