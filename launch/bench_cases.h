// The cases of `weft bench step`: what each must read and compute at least, and what is predicted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/bench_ceilings.h"
#include "planner/plan.h"

namespace weft::launch {

struct StepCase {
  bool prefill = false;
  size_t batch = 1;
  size_t tokens = 0;  // decode: the context of each sequence; prefill: of the prompt
  size_t kv_blocks = 0;
  bool fits = true;
  double measured_ms = 0;  // median
  double limit_ms = 0;
  std::optional<double> predicted_ms;

  std::string name() const;
};

// Bytes of weights and of keys and values that a step reads, at least.
double step_bytes(const planner::ModelSpec& spec, const planner::Formats& formats,
                  const StepCase& of);
// Multiplications and additions of a step.
double step_flops(const planner::ModelSpec& spec, const StepCase& of);
// The larger of the two times that these take on one rank of `n_ranks`.
double step_limit_ms(const planner::ModelSpec& spec, const planner::Formats& formats,
                     const StepCase& of, const Ceilings& ceilings);

// The name of a GPU's profile: "h200" for "NVIDIA H200".
std::string profile_name(const std::string& gpu);

// The planner's word for one GPU of that name ("NVIDIA H200"); none where it has no profile of it.
std::optional<double> predicted_step_ms(const planner::ModelSpec& spec, const StepCase& of,
                                        const std::string& gpu, const std::string& configs);

}  // namespace weft::launch
