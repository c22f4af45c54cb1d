// `weft check`: everything that can be wrong with a model folder and a plan, all at once, before
// any allocation.
#include <CLI/CLI.hpp>
#include <memory>

#include "kernels/gpu_devices.h"
#include "launch/commands.h"
#include "launch/model_source.h"
#include "planner/plan.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

struct CheckOptions {
  std::string model;
  std::string weights = "checkpoint";
  std::string plan;
};

// Runs one check; what it throws becomes a problem.
template <class F>
void collect(std::vector<std::string>& problems, F&& check) {
  try {
    check();
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
}

void check_files(const CheckOptions& options, const planner::ModelSpec& spec,
                 std::vector<std::string>& problems) {
  collect(problems, [&] {
    open_weights(parse_weights(options.weights, options.model), options.model, spec);
  });
  collect(problems, [&] { open_tokenizer(options.model, spec); });
  collect(problems, [&] { generation_defaults(options.model); });
}

void check_plan(const std::string& path, const planner::ModelSpec* spec,
                std::vector<std::string>& problems) {
  const planner::Plan plan = planner::read_plan_yaml(path);
  if (spec == nullptr) return;
  for (const std::string& problem : planner::problems(plan, *spec))
    problems.push_back(fmt::format("{}: {}", path, problem));
  fmt::print("plan: {} over {} ranks, {}\n", planner::layout_text(plan), planner::world_size(plan),
             planner::plan_sha256(plan).substr(0, 12));
}

void print_devices() {
  const kernels::GpuQuery query = kernels::query_gpus();
  for (const kernels::GpuInfo& gpu : query.gpus)
    fmt::print("GPU {}: {}, {} free of {}\n", gpu.pci_bus_id, gpu.name, human_bytes(gpu.free_bytes),
               human_bytes(gpu.total_bytes));
  if (query.gpus.empty()) fmt::print("no GPU: {}\n", query.why_none);
}

void check_all(const CheckOptions& options) {
  std::vector<std::string> problems;
  std::optional<planner::ModelSpec> spec;
  collect(problems, [&] { spec = runtime::read_model(options.model); });
  if (spec) {
    for (const std::string& problem : planner::problems(*spec))
      problems.push_back(fmt::format("{}: {}", options.model, problem));
    check_files(options, *spec, problems);
    fmt::print("model: {}, {} parameters, {}\n", spec->name,
               human_count(planner::n_parameters(*spec)), dtype_name(spec->dtype));
  }
  if (!options.plan.empty())
    collect(problems, [&] { check_plan(options.plan, spec ? &*spec : nullptr, problems); });
  print_devices();
  if (problems.empty()) {
    fmt::print("no problems found\n");
    return;
  }
  std::string text;
  for (const std::string& problem : problems) text += "\n  " + problem;
  throw input_error("{} problem{}:{}", problems.size(), problems.size() == 1 ? "" : "s", text);
}

}  // namespace

void add_check_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("check", "List all that is wrong with a model folder and a plan");
  const auto options = std::make_shared<CheckOptions>();  // shared with the parser until it has run
  command->add_option("--model", options->model, "A Hugging Face folder, or a YAML file of facts")
      ->required();
  command->add_option("--weights", options->weights, "checkpoint, or synthetic:SEED")
      ->capture_default_str();
  command->add_option("--plan", options->plan, "A plan to check against the model");
  command->callback([options] { check_all(*options); });
}

}  // namespace weft::launch
