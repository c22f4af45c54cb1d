// What a cluster is planned for: the requests, what is wanted of them, and the limits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::planner {

// latency: TTFT + (output - 1) * TPOT at the stated concurrency. throughput: output tokens a second
// of the whole cluster, closed loop. gpus: the fewest that meet the limits at that concurrency.
enum class Objective { latency, throughput, gpus };
inline constexpr std::string_view kObjectiveNames[] = {"latency", "throughput", "gpus"};

struct Workload {
  size_t prompt_tokens = 2048;
  size_t output_tokens = 256;
  // Requests that the whole cluster holds at once; unset only for throughput: as many as fit.
  std::optional<size_t> concurrency = 32;
  Objective objective = Objective::latency;
  std::optional<double> slo_ttft_ms;
  std::optional<double> slo_tpot_ms;
  std::optional<size_t> max_gpus;

  bool operator==(const Workload&) const = default;
};

inline constexpr size_t kMostTokens = size_t{1} << 30;  // of one sequence
inline constexpr size_t kMostConcurrency = 1'000'000;

// Every rule it breaks, one sentence each.
std::vector<std::string> problems(const Workload& workload);

// YAML, version 1; prompt_tokens and output_tokens must be there, and without concurrency there is
// none. Throws Error with file, line and column.
Workload parse_workload_yaml(std::string_view text, const std::string& where);
Workload read_workload_yaml(const std::string& path);
std::string to_yaml(const Workload& workload);

}  // namespace weft::planner
