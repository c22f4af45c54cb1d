// What `weft profile` measures: the time of each part of a step, by rank and by layer, and what the
// planner expects of the same.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "launch/bench_cases.h"
#include "parallel/mpi_session.h"
#include "planner/catalog.h"
#include "planner/plan.h"
#include "planner/step_cost.h"
#include "runtime/step_clock.h"

namespace weft::launch {

using PartTimes = std::array<double, runtime::kStepPartNames.size()>;  // ms, by StepPart
double total_ms(const PartTimes& times);

struct LayerTimes {
  size_t layer = 0;  // of the model
  PartTimes ms{};
};

// Means over the steps of a case.
struct RankTimes {
  size_t rank = 0;
  size_t stage = 0;
  size_t tp_rank = 0;
  PartTimes ms{};                  // all of the step
  std::vector<LayerTimes> layers;  // of ms
};

struct CaseProfile {
  StepCase of;               // measured_ms: a whole step as rank 0 sees it
  uint64_t first_batch = 0;  // of those that were timed
  size_t n_batches = 0;
  std::vector<RankTimes> ranks;
  std::vector<std::optional<planner::StepParts>> predicted;  // by stage; none without a profile
};

struct Profile {
  std::string model;
  std::string layout;
  std::string device;  // "NVIDIA H200", or "CPU, 4 threads a rank"
  bool on_gpu = false;
  std::vector<planner::Stage> stages;
  std::vector<CaseProfile> cases;
  std::vector<std::vector<runtime::PartSpan>> spans;  // by rank
};

// All ranks' spans on rank 0; nothing elsewhere. A collective of all ranks.
std::vector<std::vector<runtime::PartSpan>> gather_spans(
    const parallel::MpiSession& session, const std::vector<runtime::PartSpan>& mine);

// From the spans of the case's batches; fills `ranks`.
void summarise(const Profile& profile, CaseProfile& of);

// What of the planner's parts stands beside which of ours.
struct PredictedPart {
  std::string_view title;
  std::vector<runtime::StepPart> measured;
  double planner::StepParts::*predicted;
};
const std::vector<PredictedPart>& predicted_parts();

// Each stage's; none where formats other than 16 bits are asked for.
std::vector<std::optional<planner::StepParts>> predict_stages(
    const planner::ModelSpec& spec, const planner::Plan& plan, const StepCase& of,
    const planner::MachineProfile* machine, const planner::EngineProfile& engine);

}  // namespace weft::launch
