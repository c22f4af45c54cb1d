// `weft plan`: a plan for a model, refused with every reason or written for `weft run`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "launch/commands.h"
#include "launch/plan_options.h"
#include "launch/plan_report.h"
#include "launch/plan_validate.h"
#include "planner/memory_model.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/hf_config.h"

namespace weft::launch {
namespace {

struct PlanCommand {
  std::string model;
  std::string output;
  bool json = false;
  PlanOptions plan;
  ValidateOptions validate;
};

void print(std::FILE* to, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), to) != text.size() || std::fflush(to) != 0)
    throw run_error("cannot write the plan to standard output");
}

std::string memory_note(const PlanOptions& options, size_t n_ranks) {
  if (options.rank_memory_bytes)
    return fmt::format("a rank has {} (--gpu-memory-gib)", human_bytes(*options.rank_memory_bytes));
  const size_t machine = machine_memory_bytes();
  return fmt::format("a rank has {}: this machine's {} shared by {} (or give --gpu-memory-gib)",
                     human_bytes(machine / n_ranks), human_bytes(machine), n_ranks);
}

void run(const PlanCommand& command) {
  if (!command.validate.rows.empty())
    return print(stdout, validation_text(command.validate, command.json));
  if (command.model.empty()) throw input_error("--model is required");
  if (!command.output.empty()) check_writable(command.output);
  const planner::ModelSpec spec = runtime::read_model(command.model);
  const planner::Plan plan = make_plan(command.plan, spec, 0, 0);
  const std::string yaml = to_yaml(plan);
  const std::string table =
      plan_table(plan, spec, memory_note(command.plan, planner::world_size(plan)));
  if (!command.output.empty()) write_file(command.output, yaml);
  if (command.json) return print(stdout, plan_json(plan));
  if (!command.output.empty()) return print(stdout, table);
  std::fputs(table.c_str(), stderr);
  print(stdout, yaml);
}

}  // namespace

void add_plan_command(CLI::App& app) {
  CLI::App* plan = app.add_subcommand("plan", "Plan a layout and its memory; write plan.yaml");
  auto command = std::make_shared<PlanCommand>();  // shared with the callback that CLI11 copies
  plan->add_option("--model", command->model, "A Hugging Face folder, or a YAML file of facts");
  add_plan_options(*plan, command->plan);
  add_validate_options(*plan, command->validate);
  plan->add_option("-o,--output", command->output,
                   "Where the plan goes (default: standard output, the table to standard error)")
      ->type_name("FILE");
  plan->add_flag("--json", command->json, "One JSON object with the plan on standard output");
  plan->callback([command] {
    if (works_here()) run(*command);
  });
}

}  // namespace weft::launch
