// `weft check`: everything that can be wrong with a model folder and a plan, all at once, before
// any allocation. With --preflight under a launcher: that the job can run, proved by its ranks.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/gpu_devices.h"
#include "launch/commands.h"
#include "launch/model_source.h"
#include "launch/plan_options.h"
#include "launch/preflight_check.h"
#include "launch/problems.h"
#include "planner/plan.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

struct CheckOptions {
  std::string model;
  std::string weights = "checkpoint";
  bool json = false;
  PlanOptions plan;
  PreflightOptions preflight;
};

// What was looked at, as it is known so far.
struct Findings {
  std::optional<planner::ModelSpec> spec;
  std::optional<planner::Plan> plan;
  kernels::GpuQuery devices;
  Problems problems;
};

void check_model(const CheckOptions& options, Findings& found) {
  if (options.model.empty()) return;
  planner::ModelSpec spec;
  if (!found.problems.passes([&] { spec = runtime::read_model(options.model); })) return;
  found.problems.passes(
      [&] { open_weights(parse_weights(options.weights, options.model), options.model, spec); });
  found.problems.passes([&] { open_tokenizer(options.model, spec); });
  found.problems.passes([&] { generation_defaults(options.model); });
  found.spec = std::move(spec);
}

void check_plan(const CheckOptions& options, Findings& found) {
  if (!options.plan.plan_file) return;
  found.problems.passes([&] {
    if (found.spec)
      found.plan = make_plan(options.plan, *found.spec, 0, 0);
    else  // what can be said without the model
      found.plan = planner::read_plan_yaml(*options.plan.plan_file);
  });
}

void print_text(const Findings& found) {
  if (found.spec)
    fmt::print("model: {}, {} parameters, {}\n", found.spec->name,
               human_count(planner::n_parameters(*found.spec)), dtype_name(found.spec->dtype));
  if (found.plan)
    fmt::print("plan: {} over {} ranks, {}\n", planner::layout_text(*found.plan),
               planner::world_size(*found.plan), planner::plan_sha256(*found.plan).substr(0, 12));
  for (const kernels::GpuInfo& gpu : found.devices.gpus)
    fmt::print("GPU {}: {}, {} free of {}\n", gpu.pci_bus_id, gpu.name, human_bytes(gpu.free_bytes),
               human_bytes(gpu.total_bytes));
  if (found.devices.gpus.empty()) fmt::print("no GPU: {}\n", found.devices.why_none);
  if (found.problems.found().empty()) fmt::print("no problems found\n");
}

void print_json(const Findings& found) {
  nlohmann::ordered_json object;
  object["model"] = nullptr;
  if (found.spec)
    object["model"] = {{"name", found.spec->name},
                       {"parameters", planner::n_parameters(*found.spec)},
                       {"dtype", dtype_name(found.spec->dtype)}};
  object["plan"] = nullptr;
  if (found.plan)
    object["plan"] = {{"layout", planner::layout_text(*found.plan)},
                      {"world_size", planner::world_size(*found.plan)},
                      {"plan_sha256", planner::plan_sha256(*found.plan)}};
  object["gpus"] = nlohmann::ordered_json::array();
  for (const kernels::GpuInfo& gpu : found.devices.gpus)
    object["gpus"].push_back({{"pci_bus_id", gpu.pci_bus_id},
                              {"name", gpu.name},
                              {"free_bytes", gpu.free_bytes},
                              {"total_bytes", gpu.total_bytes}});
  object["problems"] = found.problems.found();
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// Says what it looked at on stdout, and throws all that is wrong as one Error.
void check_all(const CheckOptions& options) {
  Findings found;
  check_model(options, found);
  check_plan(options, found);
  found.devices = kernels::query_gpus();
  options.json ? print_json(found) : print_text(found);
  found.problems.refuse(options.model.empty() ? *options.plan.plan_file : options.model);
}

}  // namespace

void add_check_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("check", "List all that is wrong with a model folder and a plan");
  const auto options = std::make_shared<CheckOptions>();  // shared with the parser until it has run
  command->add_option("--model", options->model, "A Hugging Face folder, or a YAML file of facts");
  command->add_option("--weights", options->weights, "checkpoint, or synthetic:SEED")
      ->capture_default_str();
  command->add_option("--plan", options->plan.plan_file, "A plan to check against the model");
  add_memory_option(*command, options->plan);
  auto* json = command->add_flag("--json", options->json, "One JSON object on standard output");
  add_preflight_options(*command, options->preflight)->excludes(json);
  command->callback([options] {
    if (options->model.empty() && !options->plan.plan_file)
      throw input_error("weft check: give --model, --plan or both");
    if (options->preflight.wanted)
      preflight_check(options->preflight, options->plan, options->model, options->weights);
    else if (works_here())
      check_all(*options);
  });
}

}  // namespace weft::launch
