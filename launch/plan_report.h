// What `weft plan` says of a plan: a table of stages for people, one JSON object for programs.
#pragma once

#include <string>

#include "planner/plan.h"

namespace weft::launch {

// Memory of one rank by part, a stage a line. `memory_note` says what a rank may use, and why.
std::string plan_table(const planner::Plan& plan, const planner::ModelSpec& spec,
                       const std::string& memory_note);

// {"layout", "memory": [{"stage", "weights", "kv", "activations", "buffers", "total"}], "plan",
// "plan_sha256", "world_size"} in one line; bytes.
std::string plan_json(const planner::Plan& plan);

}  // namespace weft::launch
