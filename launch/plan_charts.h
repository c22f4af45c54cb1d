// The report's pictures, each an inline SVG: where stages and bytes lie, what each stage does when,
// what can be had for what, where the time goes.
#pragma once

#include <string>

#include "launch/plan_result.h"

namespace weft::launch {

inline constexpr double kPageWidth = 960;

// A box a node of the first replica, a bar a GPU: its memory by part, its stage below.
std::string nodes_chart(const PlanCase& of, const PlanResult& result);
// A row a stage: the first prompts' chunks and the decode steps after them, as the event simulation
// runs them.
std::string schedule_chart(const PlanCase& of, const PlanResult& result);
// Latency against tokens/s, a point a layout.
std::string front_chart(const PlanResult& result);
// A bar for a chunk and one for a decode step, of the best and its runner-up.
std::string time_chart(const PlanCase& of, const PlanResult& result);

}  // namespace weft::launch
