// `weft plan`: a plan for a model, refused with every reason or written for `weft run`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "launch/commands.h"
#include "launch/config_folder.h"
#include "launch/plan_html.h"
#include "launch/plan_json_report.h"
#include "launch/plan_options.h"
#include "launch/plan_ranking.h"
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
  SearchOptions search;
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

// Where nobody asks for a file, the plan is the output, and what people read goes beside it.
void deliver(const PlanCommand& command, const std::string& yaml, const std::string& table,
             const std::string& json) {
  if (!command.output.empty()) write_file(command.output, yaml);
  if (command.json) return print(stdout, json);
  if (!command.output.empty()) return print(stdout, table);
  std::fputs(table.c_str(), stderr);
  print(stdout, yaml);
}

void compare(const PlanCommand& command, const PlanCase& of) {
  if (!command.output.empty() || command.plan.layout)
    throw input_error(
        "--compare shows layouts side by side and makes no plan: leave out -o and "
        "--layout");
  std::vector<planner::Candidate> layouts;
  for (const std::string& text : command.search.compare)
    layouts.push_back(predict(of, parse_placed(text, of), command.plan));
  print(stdout, command.json ? compare_json(of, layouts) : compare_table(of, layouts));
}

void plan_on_cluster(const PlanCommand& command, const planner::ModelSpec& spec) {
  const PlanCase of =
      make_case(command.search, command.plan, spec, config_folder(command.validate.configs));
  if (!command.search.compare.empty()) return compare(command, of);
  const PlanResult result = find_plan(of, command.plan);
  std::string table = ranking_table(of, result);
  if (command.search.explain) table += explain_text(of, result);
  if (!command.search.html.empty()) write_file(command.search.html, plan_html(of, result));
  deliver(command, result.yaml, table, command.json ? search_json(of, result) : "");
}

void run(const PlanCommand& command) {
  if (!command.validate.rows.empty())
    return print(stdout, validation_text(command.validate, command.json));
  if (command.model.empty()) throw input_error("--model is required");
  for (const std::string& path : {command.output, command.search.html})
    if (!path.empty()) check_writable(path);
  const planner::ModelSpec spec = runtime::read_model(command.model);
  if (!command.search.cluster.empty()) return plan_on_cluster(command, spec);
  const planner::Plan plan = make_plan(command.plan, spec, 0, 0);
  const std::string table =
      plan_table(plan, spec, memory_note(command.plan, planner::world_size(plan)));
  deliver(command, to_yaml(plan), table, plan_json(plan));
}

}  // namespace

void add_plan_command(CLI::App& app) {
  CLI::App* plan = app.add_subcommand("plan", "Plan a layout and its memory; write plan.yaml");
  auto command = std::make_shared<PlanCommand>();  // shared with the callback that CLI11 copies
  plan->add_option("--model", command->model, "A Hugging Face folder, or a YAML file of facts");
  add_plan_options(*plan, command->plan);
  add_search_options(*plan, command->search);
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
