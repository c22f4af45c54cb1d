// A workload's rules, and its YAML.
#include "planner/workload.h"

#include <fmt/format.h>

#include <cmath>

#include "planner/cluster_spec.h"
#include "planner/problem_list.h"
#include "planner/yaml_reader.h"
#include "runtime/base/file.h"

namespace weft::planner {
namespace {

void check_limit(std::string_view key, const std::optional<double>& ms,
                 std::vector<std::string>& found) {
  if (ms && !(*ms > 0 && std::isfinite(*ms)))
    found.push_back(fmt::format("{} {} is no time above 0", key, *ms));
}

std::optional<double> read_ms(const YamlValue& map, std::string_view key) {
  if (!map.has(key)) return std::nullopt;
  const double ms = map.at(key).number();
  if (ms <= 0) throw map.at(key).error(fmt::format("{} is no time above 0", ms));
  return ms;
}

}  // namespace

std::vector<std::string> problems(const Workload& workload) {
  std::vector<std::string> found;
  const auto within = [&](std::string_view key, size_t value, size_t most) {
    if (value < 1 || value > most)
      found.push_back(fmt::format("{} {} is not from 1 to {}", key, value, most));
  };
  within("prompt_tokens", workload.prompt_tokens, kMostTokens);
  within("output_tokens", workload.output_tokens, kMostTokens);
  if (workload.concurrency) within("concurrency", *workload.concurrency, kMostConcurrency);
  if (workload.max_gpus) within("max_gpus", *workload.max_gpus, kMostClusterGpus);
  check_limit("slo_ttft_ms", workload.slo_ttft_ms, found);
  check_limit("slo_tpot_ms", workload.slo_tpot_ms, found);
  if (!workload.concurrency && workload.objective != Objective::throughput)
    found.push_back(fmt::format("objective {} needs a concurrency",
                                kObjectiveNames[static_cast<size_t>(workload.objective)]));
  if (workload.objective == Objective::gpus && !workload.slo_ttft_ms && !workload.slo_tpot_ms)
    found.push_back("objective gpus needs a limit to meet: slo_ttft_ms, slo_tpot_ms or both");
  return found;
}

Workload parse_workload_yaml(std::string_view text, const std::string& where) {
  constexpr std::string_view keys[] = {"version",   "prompt_tokens", "output_tokens", "concurrency",
                                       "objective", "slo_ttft_ms",   "slo_tpot_ms",   "max_gpus"};
  const YamlNode root = parse_yaml(text, where);
  const YamlValue map(root, where, "");
  map.keys(keys);
  map.at("version").only(1);
  Workload workload;
  workload.concurrency.reset();
  workload.prompt_tokens = map.at("prompt_tokens").count(1, kMostTokens);
  workload.output_tokens = map.at("output_tokens").count(1, kMostTokens);
  if (map.has("concurrency"))
    workload.concurrency = map.at("concurrency").count(1, kMostConcurrency);
  if (map.has("objective"))
    workload.objective = static_cast<Objective>(map.at("objective").choice(kObjectiveNames));
  workload.slo_ttft_ms = read_ms(map, "slo_ttft_ms");
  workload.slo_tpot_ms = read_ms(map, "slo_tpot_ms");
  if (map.has("max_gpus")) workload.max_gpus = map.at("max_gpus").count(1, kMostClusterGpus);
  refuse(where, problems(workload));
  return workload;
}

Workload read_workload_yaml(const std::string& path) {
  return parse_workload_yaml(read_text(path, kMostYamlBytes), path);
}

std::string to_yaml(const Workload& workload) {
  std::string text = fmt::format("version: 1\nprompt_tokens: {}\noutput_tokens: {}\n",
                                 workload.prompt_tokens, workload.output_tokens);
  const auto line = [&](std::string_view key, const auto& value) {
    if (value) text += fmt::format("{}: {}\n", key, *value);
  };
  line("concurrency", workload.concurrency);
  text += fmt::format("objective: {}\n", kObjectiveNames[static_cast<size_t>(workload.objective)]);
  line("slo_ttft_ms", workload.slo_ttft_ms);
  line("slo_tpot_ms", workload.slo_tpot_ms);
  line("max_gpus", workload.max_gpus);
  return text;
}

}  // namespace weft::planner
