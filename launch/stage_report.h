// What each stage did with its time, beside what the plan predicted of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "runtime/rank_worker.h"

namespace weft::launch {

// Of a stage's first rank. A batch with tokens of a prompt counts as prefill.
struct StageReport {
  planner::Range layers;
  size_t tp = 1;
  runtime::StageTimes times;
  std::optional<planner::StageSpeed> predicted;

  std::optional<double> prefill_ms() const;  // in the mean; none without such a batch
  std::optional<double> decode_ms() const;
};

struct RunReport {
  std::string layout;
  std::optional<planner::Speed> predicted;  // none in a plan that was made by hand
  std::vector<StageReport> stages;          // none before the run's end
};

// `times` of all ranks, in their order.
std::vector<StageReport> make_reports(const planner::Plan& plan,
                                      const std::vector<runtime::StageTimes>& times);

// "layers 0-2 on 2 ranks: …", and what was predicted.
std::string to_text(const StageReport& stage);

}  // namespace weft::launch
