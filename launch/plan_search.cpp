// Flags of the search.
#include "launch/plan_search.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>

#include "planner/cluster_spec.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::NumberFormat;

constexpr size_t kMostRanked = 1000;
constexpr std::string_view kValueFormats[] = {"bf16", "fp8"};

// Flags that mean nothing without a cluster.
class Flags {
 public:
  Flags(CLI::App& command, CLI::Option* cluster) : command_(command), cluster_(cluster) {}

  template <class Take>
  CLI::Option* text(const std::string& flag, const std::string& type, const std::string& what,
                    Take take) {
    return command_.add_option_function<std::string>(flag, take, what)
        ->type_name(type)
        ->needs(cluster_);
  }

  void count(const std::string& flag, std::optional<size_t>& to, size_t most,
             const std::string& what) {
    text(flag, "N", what, [flag, most, &to](const std::string& given) {
      const size_t value = parse_count(given, flag, most);
      if (value == 0) throw input_error("{} 0: must be at least 1", flag);
      to = value;
    });
  }

  void milliseconds(const std::string& flag, std::optional<double>& to, const std::string& what) {
    command_
        .add_option_function<double>(
            flag,
            [flag, &to](double ms) {
              if (!(ms > 0) || !std::isfinite(ms))
                throw input_error("{} {} is no time above 0", flag, ms);
              to = ms;
            },
            what)
        ->type_name("MS")
        ->needs(cluster_);
  }

  // The names' order is that of the enumeration.
  template <class T>
  void choice(const std::string& flag, std::optional<T>& to,
              std::span<const std::string_view> names, const std::string& what) {
    text(flag, "NAME", what, [flag, names, &to](const std::string& given) {
      const auto found = std::find(names.begin(), names.end(), given);
      if (found == names.end())
        throw input_error("{} \"{}\" is none of {}{}", flag, given, fmt::join(names, ", "),
                          did_you_mean(given, names));
      to = static_cast<T>(found - names.begin());
    });
  }

  void flag(const std::string& flag, bool& to, const std::string& what) {
    command_.add_flag(flag, to, what)->needs(cluster_);
  }
  CLI::Option* name(const std::string& flag, std::string& to, const std::string& type,
                    const std::string& what) {
    return command_.add_option(flag, to, what)->type_name(type)->needs(cluster_);
  }
  // One value each time that it is given.
  CLI::Option* several(const std::string& flag, std::vector<std::string>& to,
                       const std::string& type, const std::string& what) {
    return command_.add_option(flag, to, what)
        ->allow_extra_args(false)
        ->type_name(type)
        ->needs(cluster_);
  }

 private:
  CLI::App& command_;
  CLI::Option* cluster_;
};

void add_workload(Flags& flags, SearchOptions& options) {
  flags.name("--workload", options.workload, "FILE",
             "Requests and limits as YAML; the flags below count over it");
  flags.count("--prompt-tokens", options.prompt_tokens, planner::kMostTokens,
              "Tokens of a prompt (default 2048)");
  flags.count("--output-tokens", options.output_tokens, planner::kMostTokens,
              "Tokens of an answer (default 256)");
  flags.count("--concurrency", options.concurrency, planner::kMostConcurrency,
              "Requests at once over the whole cluster (default 32)");
  flags.choice("--objective", options.objective, planner::kObjectiveNames,
               "latency (of a request; default), throughput (of the cluster), or the fewest gpus "
               "within the limits");
  flags.milliseconds("--slo-ttft-ms", options.slo_ttft_ms, "Most time to the first token");
  flags.milliseconds("--slo-tpot-ms", options.slo_tpot_ms, "Most time per output token after it");
  flags.count("--max-gpus", options.max_gpus, planner::kMostClusterGpus,
              "GPUs that may be used (default: all)");
}

void add_formats(Flags& flags, SearchOptions& options) {
  flags.choice("--weights", options.weights, planner::kNumberFormatNames,
               "Of weights: bf16 (default), fp8, int8 or int4");
  flags.choice("--kv-key", options.kv_key, planner::kNumberFormatNames,
               "Of cached keys (default: the engine's)");
  flags.choice("--kv-value", options.kv_value, kValueFormats,
               "Of cached values: bf16 or fp8 (default: the engine's)");
  flags.name("--engine", options.engine, "NAME",
             "Whose habits and overheads: weft (default), vllm, trtllm or sglang");
  flags.name("--engine-version", options.engine_version, "VERSION",
             "Where habits changed between versions (default: the newest)");
  flags.name("--machine-profile", options.machine_profile, "FILE",
             "Used instead of the shipped profile of its GPU: what `weft bench calibrate` wrote");
}

void add_outputs(Flags& flags, SearchOptions& options) {
  flags.text("--top", "N", "Layouts in the ranking (default 10)",
             [&options](const std::string& given) {
               options.top = parse_count(given, "--top", kMostRanked);
               if (options.top == 0) throw input_error("--top 0: must be at least 1");
             });
  flags.flag("--explain", options.explain,
             "What was refused and what would make it fit; where the time goes");
  CLI::Option* html =
      flags.name("--html", options.html, "FILE", "The report as one page, without network");
  flags
      .several("--compare", options.compare, "STAGES",
               "Predicts this layout beside others, side by side; given twice or more")
      ->excludes(html);
}

}  // namespace

void add_search_options(CLI::App& command, SearchOptions& options) {
  CLI::Option* cluster =
      command
          .add_option("--cluster", options.cluster,
                      "A cluster's YAML file, or the name of a shipped one: the layout is searched "
                      "for, or that of --layout predicted")
          ->type_name("FILE");
  Flags flags(command, cluster);
  add_workload(flags, options);
  add_formats(flags, options);
  flags.flag("--tp-across-nodes", options.tp_across_nodes,
             "Also tensor-parallel groups wider than a node");
  flags.flag("--separate-groups", options.separate_groups,
             "Also replicas with groups of their own for prefill and decode");
  add_outputs(flags, options);
}

planner::Workload workload_of(const SearchOptions& options) {
  planner::Workload workload;
  if (!options.workload.empty()) workload = planner::read_workload_yaml(options.workload);
  const auto lay = [](const auto& flag, auto& value) {
    if (flag) value = *flag;
  };
  lay(options.prompt_tokens, workload.prompt_tokens);
  lay(options.output_tokens, workload.output_tokens);
  lay(options.concurrency, workload.concurrency);
  lay(options.objective, workload.objective);
  lay(options.slo_ttft_ms, workload.slo_ttft_ms);
  lay(options.slo_tpot_ms, workload.slo_tpot_ms);
  lay(options.max_gpus, workload.max_gpus);
  planner::refuse("workload", problems(workload));
  return workload;
}

}  // namespace weft::launch
