// `weft profile`'s answers: a table, JSON, a picture, and a trace for chrome://tracing or Perfetto.
#pragma once

#include <string>

#include "launch/step_profile.h"

namespace weft::launch {

// Parts by stage (of each stage's first rank), what the planner says beside them, layers.
std::string profile_text(const Profile& profile);
// One object; every rank by itself.
std::string profile_json(const Profile& profile);
// A bar for each case and stage, cut by part; below it a bar for each of its layers.
std::string profile_svg(const Profile& profile);
// Every span of the steps that were timed: a process a rank, a thread a case.
std::string profile_trace(const Profile& profile);

}  // namespace weft::launch
