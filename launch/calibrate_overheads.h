// What weft's CPU backend takes beside products, attention and sums: whole layers and whole steps
// of small models are timed, and what the curves explain of them is taken off.
#pragma once

#include "launch/calibrate_rig.h"
#include "planner/cost_model.h"

namespace weft::launch {

// layer_us and pass_gbps of `curve`, with the profile's products and attention, which are of this
// rig's ranks at once. A collective of them; each runs whole layers of its own.
void time_layers(const Rig& rig, const parallel::MpiSession& session,
                 const planner::MachineProfile& profile, planner::OverheadCurve& curve);

// Microseconds between two tokens of one sequence, and what the profile says of them.
struct StepTime {
  double measured_us = 0;
  double explained_us = 0;
  size_t n_stages = 1;

  // What is left, for each stage; not below 0.
  double step_us() const;
};
// A job of all ranks, `tp` of them a stage. A collective of all ranks; the times are rank 0's. tp
// is 1, 2, 4 or 8: it divides the ranks, and the models' heads.
StepTime time_steps(const parallel::MpiSession& session, size_t tp, size_t n_threads,
                    const planner::MachineProfile& profile, bool quick);

}  // namespace weft::launch
