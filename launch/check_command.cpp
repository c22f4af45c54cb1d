// `weft check`: everything that can be wrong with a model folder and a plan, all at once, before
// any allocation.
#include <CLI/CLI.hpp>
#include <memory>

#include "kernels/gpu_devices.h"
#include "launch/commands.h"
#include "launch/model_source.h"
#include "launch/plan_options.h"
#include "launch/problems.h"
#include "planner/plan.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

struct CheckOptions {
  std::string model;
  std::string weights = "checkpoint";
  PlanOptions plan;
};

// Says what it looked at on stdout, and throws all that is wrong as one Error.
void check_plan(const CheckOptions& options, const planner::ModelSpec& spec) {
  const planner::Plan plan = make_plan(options.plan, spec, 0, 0);
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
  Problems problems;
  planner::ModelSpec spec;
  const bool read = problems.passes([&] { spec = runtime::read_model(options.model); });
  if (read) {
    fmt::print("model: {}, {} parameters, {}\n", spec.name,
               human_count(planner::n_parameters(spec)), dtype_name(spec.dtype));
    problems.passes(
        [&] { open_weights(parse_weights(options.weights, options.model), options.model, spec); });
    problems.passes([&] { open_tokenizer(options.model, spec); });
    problems.passes([&] { generation_defaults(options.model); });
  }
  if (options.plan.plan_file && read)
    problems.passes([&] { check_plan(options, spec); });
  else if (options.plan.plan_file)  // what can be said without the model
    problems.passes([&] { planner::read_plan_yaml(*options.plan.plan_file); });
  print_devices();
  problems.refuse(options.model);
  fmt::print("no problems found\n");
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
  command->add_option("--plan", options->plan.plan_file, "A plan to check against the model");
  add_memory_option(*command, options->plan);
  command->callback([options] {
    if (works_here()) check_all(*options);
  });
}

}  // namespace weft::launch
