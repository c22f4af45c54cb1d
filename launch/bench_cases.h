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

// Of the GPU's memory, by all ranks on it: what was in use at most, and what the plan says.
struct MemoryUse {
  size_t peak_bytes = 0;
  planner::MemoryParts planned;  // of a rank
  size_t reserved_bytes = 0;     // of a rank, for CUDA itself
  size_t n_ranks = 1;

  size_t planned_bytes() const { return n_ranks * (planned.total() + reserved_bytes); }
  double ratio() const {
    return static_cast<double>(peak_bytes) / static_cast<double>(planned_bytes());
  }
};
// "memory: 67.9 GiB in use at most, 68.3 GiB planned (weights 62.1 + …), ratio 0.994".
std::string memory_text(const MemoryUse& use);

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
