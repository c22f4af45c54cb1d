// The planner's word on the layouts and cases of `weft bench scale`.
#pragma once

#include <optional>
#include <string>

#include "launch/plan_case.h"
#include "launch/scale_layouts.h"
#include "launch/scale_report.h"

namespace weft::launch {

struct ScaleSetting {
  planner::ClusterSpec cluster;
  std::string configs;          // folder of shipped profiles
  std::string machine_profile;  // a file that stands for the shipped profile; "" = none
  PlanOptions plan;             // numerics, type
};

// How a layout is driven in a case, as the measurement does it.
struct ScaleSchedule {
  size_t batches_in_flight = 1;
  size_t prefill_chunk = 512;
};
ScaleSchedule schedule_of(const ScaleCase& of, size_t n_stages, size_t prefill_chunk);

// Milliseconds of a token of each sequence, or of a prompt until its first token. Throws Error
// where the planner has no curve for it, or the layout no room.
double predicted_ms(const ScaleSetting& setting, const planner::ModelSpec& spec,
                    const StageLayouts& layout, const ScaleCase& of, const ScaleSchedule& schedule);

}  // namespace weft::launch
