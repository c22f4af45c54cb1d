// The steps in order; rank 0 prints what each has shown.
#include "launch/preflight_check.h"

#include <CLI/CLI.hpp>
#include <set>

#include "kernels/gpu_device.h"
#include "launch/config_folder.h"
#include "launch/model_source.h"
#include "launch/preflight.h"
#include "parallel/gather.h"
#include "planner/memory_model.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using parallel::SetupStep;

class PreflightCheck {
 public:
  PreflightCheck(RankProcess& process, const PreflightOptions& options, const PlanOptions& plan,
                 const std::string& model, const std::string& weights)
      : process_(process),
        session_(process.session),
        options_(options),
        plan_options_(plan),
        model_(model),
        weights_(weights),
        preflight_(process, options.limit_s) {}

  void run();

 private:
  bool leads() const { return session_.rank() == 0; }
  void read_plan();
  void compare_plan_files();
  void check_model();
  void check_plan_of_model();
  void take_device();
  void check_gpu_memory();
  void print() const;
  void print_edges() const;

  RankProcess& process_;
  const parallel::MpiSession& session_;
  const PreflightOptions& options_;
  const PlanOptions& plan_options_;
  const std::string& model_;
  const std::string& weights_;
  Preflight preflight_;
  Device device_;
  planner::Plan plan_;
  planner::ModelSpec spec_;
  std::optional<planner::ClusterSpec> cluster_;  // rank 0
};

std::string mismatch(const planner::Plan& plan, int n_ranks) {
  const size_t wanted = planner::world_size(plan);
  return fmt::format("the plan {} is for {} ranks and the job has {}: start it with -n {}",
                     layout_text(plan), wanted, n_ranks, wanted);
}

// Rank 0's plan counts; another host may hold another file of that name, or none.
void PreflightCheck::read_plan() {
  preflight_.step(SetupStep::plan, [&] {
    if (!leads()) return;
    plan_ = planner::read_plan_yaml(*plan_options_.plan_file);
    std::vector<std::string> problems;
    if (plan_.replicas.empty() || plan_.replicas.front().stages.empty())
      problems.push_back("it has no stages");
    else if (planner::world_size(plan_) != static_cast<size_t>(session_.size()))
      problems.push_back(mismatch(plan_, session_.size()));
    planner::refuse("plan " + *plan_options_.plan_file, problems);
    cluster_ = options_.cluster.empty() ? shipped_cluster(plan_.cluster)
                                        : find_cluster(options_.cluster, config_folder(""));
  });
  const std::string yaml = parallel::broadcast_text(session_, planner::to_yaml(plan_));
  preflight_.step(SetupStep::plan, [&] {
    if (!leads()) plan_ = planner::parse_plan_yaml(yaml, "the plan from rank 0");
    compare_plan_files();
  });
}

void PreflightCheck::compare_plan_files() {
  if (leads() || !is_file(*plan_options_.plan_file)) return;
  const planner::Plan mine = planner::read_plan_yaml(*plan_options_.plan_file);
  if (plan_sha256(mine) != plan_sha256(plan_))
    throw input_error("{} is another plan here ({}) than on rank 0 ({})", *plan_options_.plan_file,
                      plan_sha256(mine).substr(0, 12), plan_sha256(plan_).substr(0, 12));
}

void PreflightCheck::check_model() {
  preflight_.step(SetupStep::model, [&] { spec_ = runtime::read_model(model_); });
  preflight_.same(planner::facts_sha256(spec_), "other model facts");
  check_plan_of_model();
  std::string fingerprint;
  preflight_.step(SetupStep::checkpoint, [&] {
    fingerprint = open_weights(parse_weights(weights_, model_), model_, spec_)->fingerprint();
  });
  preflight_.same(fingerprint, "other weights");
}

void PreflightCheck::check_plan_of_model() {
  preflight_.step(SetupStep::inputs, [&] {
    planner::refuse("plan " + *plan_options_.plan_file, planner::problems(plan_, spec_));
    planner::predict_memory(spec_, plan_);
    open_tokenizer(model_, spec_);
  });
}

// A plan's groups may move a rank to another GPU: then again.
void PreflightCheck::take_device() {
  device_ = choose_device(session_, process_.binding, options_.device);
  process_.guardian.rename(device_.name);
}

// In a run the weights' room is asked for with the engine's set-up.
void PreflightCheck::check_gpu_memory() {
  if (!device_.gpu) return;
  parallel::agree(session_, [&] { kernels::select_gpu(*device_.gpu); });
  const size_t least = gpu_rank_memory(session_, device_);
  const size_t stage = parallel::make_mesh(plan_).stage_of(session_.rank());
  preflight_.step(SetupStep::memory, [&] {
    const auto& memory = plan_.predicted.rank_memory;
    const size_t needs = stage < memory.size() ? memory[stage].total() : 0;
    if (needs > least)
      throw input_error("{}: the plan foresees {} and {} is free for it on the fullest GPU",
                        device_.name, human_bytes(needs), human_bytes(least));
  });
}

void PreflightCheck::run() {
  preflight_.versions();
  read_plan();
  if (!model_.empty()) check_model();
  preflight_.early_places();
  take_device();
  preflight_.places(plan_, takes_nccl(device_, session_.size(), options_.device));
  if (device_.gpu) take_device();
  check_gpu_memory();
  preflight_.messages(plan_, device_, options_.device);
  parallel::agree(session_, [&] {
    if (leads()) print();
  });
}

void PreflightCheck::print() const {
  std::set<int> nodes;
  for (const parallel::RankFacts& facts : preflight_.facts()) nodes.insert(facts.node);
  fmt::print("plan {} ({}): {} ranks on {} {}\n", layout_text(plan_),
             plan_sha256(plan_).substr(0, 12), session_.size(), nodes.size(),
             nodes.size() == 1 ? "host" : "hosts");
  fmt::print("{}", places_text(preflight_.facts()));
  print_edges();
  if (model_.empty()) fmt::print("weights were not looked at: no --model\n");
  fmt::print("this job can run\n");
  if (std::fflush(stdout) != 0) throw run_error("cannot write to standard output");
}

void PreflightCheck::print_edges() const {
  fmt::print("{}", edges_text(preflight_.edges()));
  if (!cluster_) return;
  for (const std::string& slow : slow_edges(preflight_.edges(), *cluster_))
    spdlog::warn("{}", slow);
}

}  // namespace

CLI::Option* add_preflight_limit(CLI::App& command, std::optional<double>& limit_s) {
  return command
      .add_option("--preflight-limit-s", limit_s,
                  "A step of preflight that takes longer ends the job; 0 sets no limit (default: "
                  "30 to 600, by step)")
      ->check(CLI::Range(0.0, 1e6));
}

CLI::Option* add_preflight_options(CLI::App& command, PreflightOptions& options) {
  CLI::Option* wanted = command.add_flag(
      "--preflight", options.wanted,
      "Under mpirun or srun: prove that a job of this plan can run here, then end");
  wanted->needs(command.get_option("--plan"));
  command
      .add_option("--cluster", options.cluster,
                  "With --preflight: warn of edges below 70 % of what this cluster promises")
      ->needs(wanted);
  command
      .add_flag("!--no-guardian", options.guardian,
                "With --preflight: without guardians, and so without time limits")
      ->needs(wanted);
  add_preflight_limit(command, options.limit_s)->needs(wanted);
  command.add_flag("!--no-bind", options.bind, "With --preflight: leave ranks where they are")
      ->needs(wanted);
  add_device_choice(command, options.device);
  for (const char* flag : {"--backend", "--gpu-transport", "--share-gpus"})
    command.get_option(flag)->needs(wanted);
  return wanted;
}

void preflight_check(const PreflightOptions& options, const PlanOptions& plan,
                     const std::string& model, const std::string& weights) {
  const RankOptions rank{options.guardian,
                         {.bind = options.bind,
                          .use_gpus = may_use_gpus(options.device),
                          .share_gpus = options.device.share_gpus},
                         false};
  as_rank(rank, [&](RankProcess& process) {
    PreflightCheck(process, options, plan, model, weights).run();
  });
}

}  // namespace weft::launch
