// What a plan with a cluster found: the ranking, the plan of its best, and what the runtime does
// not execute of it yet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/plan_given.h"
#include "planner/throughput_law.h"

namespace weft::launch {

struct PlanResult {
  planner::SearchResult search;  // of a given layout: that one alone
  planner::Plan plan;
  std::string yaml;                           // of the plan, with comments that explain it
  std::vector<std::string> not_executed;      // why `weft run` refuses it for now
  std::optional<planner::ThroughputLaw> law;  // none where requests can't be longer or shorter
  bool given = false;                         // the layout was
  bool extrapolated = false;                  // the best's times
};

// Searches, or predicts the layout of the flags. Throws Error where nothing meets the limits: by
// how much, and what would.
PlanResult find_plan(const PlanCase& of, const PlanOptions& options);

// Bytes of a rank of stage s by part, KV included, at the schedule's batch.
std::vector<planner::BytesPart> memory_of(const planner::Candidate& candidate, size_t s);
size_t total_bytes(const std::vector<planner::BytesPart>& parts);
// The stage whose rank is fullest, as a share of its memory.
size_t fullest_stage(const planner::Candidate& candidate);

}  // namespace weft::launch
