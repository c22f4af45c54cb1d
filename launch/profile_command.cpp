// `weft profile`: where the time of a prefill and of a decode step goes, part by part and layer by
// layer, on the ranks of a layout or a plan, beside what the planner expects.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <numeric>

#include "kernels/gpu_device.h"
#include "launch/commands.h"
#include "launch/config_folder.h"
#include "launch/device_choice.h"
#include "launch/model_source.h"
#include "launch/problems.h"
#include "launch/profile_report.h"
#include "launch/rank_process.h"
#include "launch/run_options.h"
#include "parallel/binding.h"
#include "parallel/gather.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/hf_config.h"
#include "runtime/step_driver.h"

namespace weft::launch {
namespace {

constexpr size_t kUsualContext = 2048;
constexpr size_t kUsualPrefill = 512;
constexpr size_t kPrefills = 3;

struct ProfileOptions {
  std::string model;
  std::string weights = "checkpoint";
  std::string configs;
  std::string machine_profile;
  PlanOptions plan;
  DeviceOptions device;
  std::optional<size_t> batch;
  std::optional<size_t> prefill;
  size_t n_steps = 8;
  size_t threads = 0;
  std::string svg;
  std::string trace;
  bool json = false;
};

// What is measured; the plan's limits hold it.
struct Cases {
  StepCase prefill, decode;
};

StepCase step_case(bool prefill, size_t batch, size_t tokens) {
  StepCase made;
  made.prefill = prefill;
  made.batch = batch;
  made.tokens = tokens;
  return made;
}

size_t blocks_needed(const Cases& cases, size_t n_steps) {
  return std::max(
      runtime::StepDriver::decode_blocks(cases.decode.batch, cases.decode.tokens, n_steps),
      runtime::StepDriver::prefill_blocks(cases.prefill.tokens));
}

// Of a layout's flags: limits just wide enough for the cases.
planner::Plan plan_around(const ProfileOptions& options, const planner::ModelSpec& spec,
                          size_t n_ranks, size_t rank_memory_bytes, Cases& cases) {
  PlanOptions asked = options.plan;
  const size_t context = asked.context.value_or(std::min(kUsualContext, spec.context));
  const size_t batch = options.batch.value_or(1);
  const size_t tokens = options.prefill.value_or(std::min(kUsualPrefill, context));
  cases = {step_case(true, 1, tokens), step_case(false, batch, context)};
  asked.context = std::max(context, tokens);
  asked.max_sequences = batch;
  asked.max_batch_tokens = asked.prefill_chunk = std::max(tokens, batch);
  const size_t one_sequence = (*asked.context - 1) / planner::kKvBlockTokens + 1;
  asked.kv_blocks = std::max(blocks_needed(cases, options.n_steps), one_sequence);
  return make_plan(asked, spec, n_ranks, rank_memory_bytes);
}

// Of a plan that is given: cases within its limits.
planner::Plan plan_given(const ProfileOptions& options, const planner::ModelSpec& spec,
                         size_t n_ranks, size_t rank_memory_bytes, Cases& cases) {
  planner::Plan plan = make_plan(options.plan, spec, n_ranks, rank_memory_bytes);
  const planner::Limits& limits = plan.limits;
  const size_t most_rows = std::min(limits.max_batch_tokens, limits.context);
  cases = {step_case(true, 1, options.prefill.value_or(std::min(kUsualPrefill, most_rows))),
           step_case(false, options.batch.value_or(1),
                     std::min(options.plan.context.value_or(kUsualContext), limits.context))};
  Problems problems;
  const auto check = [&](std::string_view flag, size_t value, size_t most, std::string_view what) {
    if (value > most)
      problems.add(fmt::format("{} {} is above the plan's {} {}", flag, value, what, most));
  };
  check("--prefill", cases.prefill.tokens, limits.max_batch_tokens, "max_batch_tokens");
  check("--prefill", cases.prefill.tokens, limits.context, "context");
  check("--batch", cases.decode.batch, limits.max_sequences, "max_sequences");
  check("--batch", cases.decode.batch, limits.max_batch_tokens, "max_batch_tokens");
  const size_t blocks = blocks_needed(cases, options.n_steps);
  if (blocks > limits.kv_blocks)
    problems.add(
        fmt::format("batch {} at context {} takes {} KV blocks, of which the plan has {}: give a "
                    "shorter --context or a smaller --batch",
                    cases.decode.batch, cases.decode.tokens, blocks, limits.kv_blocks));
  problems.refuse("can't profile");
  return plan;
}

planner::Plan plan_of(const ProfileOptions& options, const planner::ModelSpec& spec, size_t n_ranks,
                      size_t rank_memory_bytes, Cases& cases) {
  planner::Plan plan = options.plan.plan_file
                           ? plan_given(options, spec, n_ranks, rank_memory_bytes, cases)
                           : plan_around(options, spec, n_ranks, rank_memory_bytes, cases);
  const size_t least = runtime::StepDriver::least_context(options.n_steps);
  if (cases.decode.tokens < least)
    throw input_error(
        "a context of {} holds fewer than the {} steps that {} timed ones take: give "
        "--steps {} or fewer, or a longer --context",
        cases.decode.tokens, least, options.n_steps,
        cases.decode.tokens > least - options.n_steps
            ? cases.decode.tokens - (least - options.n_steps)
            : 1);
  return plan;
}

// What the planner knows of this machine; null where that is nothing.
class Prediction {
 public:
  Prediction(const ProfileOptions& options, const Device& device)
      : catalog_(config_folder(options.configs)) {
    if (!options.machine_profile.empty()) {
      own_ = planner::read_machine_profile(options.machine_profile);
      machine_ = &*own_;
      return;
    }
    try {
      machine_ = &catalog_.machine(device.gpu ? profile_name(device.product) : "cpu");
    } catch (const planner::UnknownName&) {
      spdlog::info("there is no profile of this machine: nothing is predicted");
    }
  }

  void add(const planner::ModelSpec& spec, const planner::Plan& plan, CaseProfile& to) {
    to.predicted = predict_stages(spec, plan, to.of, machine_, catalog_.engine("weft"));
  }

 private:
  planner::Catalog catalog_;
  std::optional<planner::MachineProfile> own_;
  const planner::MachineProfile* machine_ = nullptr;
};

CaseProfile run_case(runtime::StepDriver& driver, const StepCase& of, size_t n_steps) {
  CaseProfile made;
  made.of = of;
  const std::vector<double> times = of.prefill ? driver.prefill_ms(of.tokens, kPrefills)
                                               : driver.decode_ms(of.batch, of.tokens, n_steps);
  made.n_batches = times.size();
  made.first_batch = driver.latest_batch() + 1 - times.size();
  made.of.measured_ms =
      std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  return made;
}

void answer(const ProfileOptions& options, Profile& profile) {
  for (CaseProfile& one : profile.cases) summarise(profile, one);
  if (!options.svg.empty()) write_file(options.svg, profile_svg(profile));
  if (!options.trace.empty()) write_file(options.trace, profile_trace(profile));
  fmt::print("{}", options.json ? profile_json(profile) : profile_text(profile));
}

class Profiling {
 public:
  Profiling(const RankProcess& process, const ProfileOptions& options)
      : session_(process.session), binding_(process.binding), options_(options) {}

  void run() {
    set_up();
    runtime::EngineOptions wanted;
    wanted.n_threads = threads_of_rank(session_, options_.threads);
    wanted.gpu = device_.gpu;
    wanted.shares_gpu = device_.n_sharing > 1;
    wanted.transport = options_.device.transport;
    wanted.clocks = true;
    runtime::Engine engine(session_, spec_, plan_, *source_, wanted);
    engine.fill_cache();
    Profile profile;
    if (leads()) {
      runtime::StepDriver driver(engine, spec_, plan_.limits);
      for (const StepCase* of : {&cases_.prefill, &cases_.decode})
        profile.cases.push_back(run_case(driver, *of, options_.n_steps));
      engine.stop_followers();
    } else {
      engine.follow();
    }
    profile.spans = gather_spans(session_, engine.spans());
    parallel::agree(session_, [&] {
      if (leads()) report(profile, wanted.n_threads);
    });
    engine.close();
  }

 private:
  bool leads() const { return session_.rank() == 0; }

  // Everything that can be wrong, before anything is allocated.
  void set_up() {
    parallel::agree(session_, [&] {
      spec_ = runtime::read_model(options_.model);
      source_ =
          open_weights(parse_weights(options_.weights, options_.model), options_.model, spec_);
      if (!leads()) return;
      for (const std::string& path : {options_.svg, options_.trace})
        if (!path.empty()) check_writable(path);
    });
    device_ = choose_device(session_, binding_, options_.device);
    size_t rank_memory = 0;
    if (device_.gpu) {
      parallel::agree(session_, [&] { kernels::select_gpu(*device_.gpu); });
      const auto all = parallel::gather(session_, gpu_rank_memory(session_, device_));
      rank_memory = *std::min_element(all.begin(), all.end());
    }
    ProfileOptions asked = options_;
    if (device_.gpu) asked.plan.backend = planner::Backend::cuda;
    parallel::agree(session_, [&] {
      if (!leads()) return;
      const auto n_ranks = static_cast<size_t>(session_.size());
      plan_ = plan_of(asked, spec_, n_ranks, rank_memory, cases_);
      prediction_.emplace(options_, device_);
    });
    const std::string yaml = parallel::broadcast_text(session_, planner::to_yaml(plan_));
    if (!leads()) plan_ = planner::parse_plan_yaml(yaml, "the plan from rank 0");
  }

  void report(Profile& profile, size_t n_threads) {
    profile.model = spec_.name;
    profile.layout = planner::layout_text(plan_);
    profile.on_gpu = device_.gpu.has_value();
    profile.device = profile.on_gpu ? device_.product
                                    : fmt::format("CPU, {} thread{} a rank", n_threads,
                                                  n_threads == 1 ? "" : "s");
    profile.stages = plan_.replicas.front().stages;
    for (CaseProfile& one : profile.cases) prediction_->add(spec_, plan_, one);
    answer(options_, profile);
  }

  const parallel::MpiSession& session_;
  const parallel::Binding& binding_;
  const ProfileOptions& options_;
  planner::ModelSpec spec_;
  std::unique_ptr<runtime::TensorSource> source_;
  Device device_;
  planner::Plan plan_;
  Cases cases_;                           // rank 0
  std::optional<Prediction> prediction_;  // rank 0
};

void run(const ProfileOptions& options) {
  const RankOptions rank{
      true,
      {.use_gpus = may_use_gpus(options.device), .share_gpus = options.device.share_gpus},
      false};
  as_rank(rank, [&](RankProcess& process) {
    verify_binding(process.session, process.binding, {});
    Profiling(process, options).run();
  });
}

void add_count(CLI::App& command, const std::string& flag, std::optional<size_t>& to,
               const std::string& what) {
  command
      .add_option_function<std::string>(
          flag,
          [flag, &to](const std::string& text) {
            to = parse_count(text, flag, size_t{1} << 20);
            if (*to == 0) throw input_error("{} 0: must be at least 1", flag);
          },
          what)
      ->type_name("N");
}

}  // namespace

void add_profile_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "profile", "Where the time of a prefill and of a decode step goes, by part and by layer");
  const auto options = std::make_shared<ProfileOptions>();  // shared with the parser
  command->add_option("--model", options->model, "A Hugging Face folder, or a YAML file of facts")
      ->required();
  command->add_option("--weights", options->weights, "checkpoint, or synthetic:SEED")
      ->capture_default_str();
  add_plan_options(*command, options->plan);
  add_plan_file_option(*command, options->plan);
  add_device_options(*command, options->device);
  add_count(*command, "--batch", options->batch, "Sequences of the decode step (default 1)");
  add_count(*command, "--prefill", options->prefill,
            "Tokens of the prompt (default 512, or the context); the decode step sees --context "
            "positions (default 2048)");
  command->add_option("--steps", options->n_steps, "Decode steps that are timed")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads of each rank on CPUs")
      ->check(CLI::Range(1, 1024));
  command->add_option("--machine-profile", options->machine_profile,
                      "What the prediction rests on (default: the shipped profile of the GPU, or "
                      "of CPUs)");
  command->add_option("--configs", options->configs, "Folder of the shipped profiles");
  command->add_flag("--json", options->json, "One JSON object, every rank by itself");
  command->add_option("--svg", options->svg, "Write bars of the parts and layers");
  command->add_option("--trace", options->trace,
                      "Write a trace that chrome://tracing and Perfetto show");
  command->callback([options] { run(*options); });
}

}  // namespace weft::launch
