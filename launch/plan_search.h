// The flags of `weft plan --cluster`: what is searched for, and what is shown of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/number_format.h"
#include "planner/workload.h"

namespace CLI {
class App;
}

namespace weft::launch {

struct SearchOptions {
  std::string cluster;   // a file, or the name of a shipped one; "" = the layout is given by hand
  std::string workload;  // a file; the flags below count over it
  std::optional<size_t> prompt_tokens;
  std::optional<size_t> output_tokens;
  std::optional<size_t> concurrency;
  std::optional<planner::Objective> objective;
  std::optional<double> slo_ttft_ms;
  std::optional<double> slo_tpot_ms;
  std::optional<size_t> max_gpus;
  std::optional<planner::NumberFormat> weights;
  std::optional<planner::NumberFormat> kv_key;
  std::optional<planner::NumberFormat> kv_value;
  std::string engine = "weft";
  std::string engine_version;
  std::string machine_profile;  // a file that stands for the shipped profile of its GPU
  bool tp_across_nodes = false;
  bool separate_groups = false;
  size_t top = 10;
  bool explain = false;
  std::string html;
  std::vector<std::string> compare;
};

// Each needs --cluster. `--layout`, `--tp/--pp`, `--context` and others are those of PlanOptions.
void add_search_options(CLI::App& command, SearchOptions& options);

// The workload of the file, or the default, with the flags laid over it. Throws Error.
planner::Workload workload_of(const SearchOptions& options);

}  // namespace weft::launch
