// The flags of `weft run`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/device_choice.h"
#include "launch/plan_options.h"
#include "launch/preflight.h"
#include "launch/prompts.h"
#include "parallel/mpi_session.h"
#include "runtime/hf_config.h"

namespace CLI {
class App;
}

namespace weft::launch {

struct RunOptions {
  std::string model;
  std::string weights = "checkpoint";
  PlanOptions plan;
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::string prompts;  // JSON lines
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> repetition_penalty;
  uint64_t seed = 0;
  std::vector<std::string> stops;
  size_t max_tokens = 128;
  bool ignore_eos = false;
  std::optional<size_t> logprobs;
  std::string logits;
  bool stream = false;
  bool json = false;
  DeviceOptions device;
  size_t threads = 0;  // 0: this rank's share of cores
  bool mmap = true;    // on the CPU: the checkpoint's pages in place of copies
  bool bind = true;    // to whole cores, where that helps
  bool guardian = true;
  std::optional<double> step_limit_s;  // none: from the plan
  double drain_s = 20;
  PreflightLevel preflight = PreflightLevel::quick;
  std::optional<double> preflight_limit_s;  // of every step of it
  std::string dump_plan;
  bool verbose = false;
};

void add_run_options(CLI::App& command, RunOptions& options);

// The command line's values over the model's own advice. Throws Error listing what is wrong.
Ask default_ask(const RunOptions& options, const runtime::GenerationDefaults& defaults);

// From --prompt, --prompt-file or --prompts; exactly one must be given.
std::vector<Prompt> read_prompts(const RunOptions& options, const Ask& defaults);

// Threads of this rank: the cores it may use, shared out among the ranks of its host that may use
// them too. A collective of all ranks.
size_t threads_of_rank(const parallel::MpiSession& session, size_t asked);

}  // namespace weft::launch
