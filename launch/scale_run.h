// One layout of `weft bench scale` on the first ranks of a job: an engine of its own, tokens for
// comparison, then the cases, timed.
#pragma once

#include <string>
#include <vector>

#include "launch/device_choice.h"
#include "launch/plan_options.h"
#include "launch/scale_layouts.h"
#include "launch/scale_report.h"
#include "runtime/tensor_source.h"

namespace weft::launch {

// What all layouts have in common.
struct ScaleJob {
  const parallel::MpiSession& all;
  const planner::ModelSpec& spec;
  runtime::TensorSource& source;
  const Device& device;
  const DeviceOptions& device_options;
  size_t n_threads = 1;
  size_t rank_memory_bytes = 0;  // of the rank that has least
  PlanOptions plan;              // type and numerics of what is timed
  size_t prefill_chunk = 512;    // of layouts with several stages; others take a prompt as a whole
  size_t n_steps = 16;
};

struct ScaleMeasured {
  std::vector<std::optional<double>> ms;     // [cases] none: it does not fit
  std::vector<std::vector<int32_t>> tokens;  // of some prompts, in invariant numerics
  std::string failure;                       // on every rank of the layout; else empty
};

// A collective of the layout's ranks, which are the first of the job; others return at once, with
// nothing. Rank 0 has the figures. `tag` as MpiSession::of_first's.
ScaleMeasured measure_layout(const ScaleJob& job, const StageLayouts& layout,
                             const std::vector<ScaleCase>& cases, int tag);

// GB/s at which this rank reads its GPU's memory, or the host's with n_threads threads.
double read_gbps(const Device& device, size_t n_threads);

}  // namespace weft::launch
