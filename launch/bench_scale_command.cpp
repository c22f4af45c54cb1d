// `weft bench scale`: every layout of the job's ranks, one after another in one job, beside one
// rank, beside the memory's rate and beside the plan's word.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/gpu_device.h"
#include "launch/bench_cases.h"
#include "launch/bench_command.h"
#include "launch/config_folder.h"
#include "launch/flag_words.h"
#include "launch/model_source.h"
#include "launch/problems.h"
#include "launch/rank_process.h"
#include "launch/run_options.h"
#include "launch/scale_prediction.h"
#include "launch/scale_run.h"
#include "launch/topo_cluster.h"
#include "parallel/binding.h"
#include "parallel/gather.h"
#include "parallel/topology_sources.h"
#include "planner/plan_fields.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/hf_config.h"

namespace weft::launch {
namespace {

constexpr size_t kUsualTokens = 2048;
constexpr int kPartTag = 300;  // of MPI_Comm_create_group; a layout each
constexpr std::string_view kDTypeNames[] = {"auto", "bf16", "f16", "f32"};

struct ScaleOptions {
  std::string model;
  std::string weights = "checkpoint";
  std::string layouts = "all";
  std::vector<size_t> batches = {1};
  std::optional<size_t> context;
  std::vector<size_t> prefills;
  size_t prefill_chunk = 512;
  size_t n_steps = 16;
  std::optional<DType> dtype;
  std::optional<planner::Numerics> numerics;  // none: fast on GPUs, invariant on CPUs
  std::string cluster;
  std::string machine_profile;
  std::string configs;
  size_t threads = 0;
  bool bind = true;
  bool json = false;
  bool verbose = false;
  DeviceOptions device;
};

std::vector<ScaleCase> cases_of(const ScaleOptions& options, const planner::ModelSpec& spec) {
  Problems problems;
  const auto check = [&](size_t tokens, std::string_view flag) {
    if (tokens > spec.context)
      problems.add(fmt::format("{} {} is more than the context of {}, {}", flag, tokens, spec.name,
                               spec.context));
    return tokens;
  };
  std::vector<ScaleCase> cases;
  const size_t context =
      check(options.context.value_or(std::min(kUsualTokens, spec.context)), "--context");
  for (const size_t batch : options.batches) cases.push_back({false, batch, context, 0});
  std::vector<size_t> prefills = options.prefills;
  if (prefills.empty()) prefills = {std::min(kUsualTokens, spec.context)};
  for (const size_t tokens : prefills) cases.push_back({true, 1, check(tokens, "--prefill"), 0});
  problems.refuse("can't measure");
  return cases;
}

// Of the cluster that was named, else of what the hosts say of themselves; none, and why, where the
// planner does not know such GPUs. A collective.
std::optional<planner::ClusterSpec> cluster_of(const parallel::MpiSession& session,
                                               const parallel::Binding& binding,
                                               const Device& device, const ScaleOptions& options,
                                               const std::string& configs, std::string& why_not) {
  std::optional<planner::ClusterSpec> given;
  parallel::agree(session, [&] {
    if (!options.cluster.empty()) given = find_cluster(options.cluster, configs);
  });
  if (given) return given;
  NodeFacts facts;
  try {
    parallel::Topology topology =
        binding.looked() && (!device.gpu || !binding.topology.gpus.empty())
            ? binding.topology
            : live_topology(device.gpu ? parallel::Devices::yes : parallel::Devices::no);
    if (!device.gpu) topology.gpus.clear();
    facts = node_facts(topology);
    facts.node.gpus = static_cast<size_t>(session.node_size());
    if (!device.gpu)
      facts.node.gpu_memory_gib =
          static_cast<double>(machine_memory_bytes()) / 0x1p30 / session.node_size();
  } catch (const Error& error) {
    why_not = error.what();
  }
  const std::vector<char> known = parallel::gather(session, static_cast<char>(why_not.empty()));
  if (std::count(known.begin(), known.end(), 1) < session.size()) {
    if (why_not.empty()) why_not = "another host's GPUs are not known to the planner";
    return std::nullopt;
  }
  return make_cluster("here", gather_facts(session, facts).nodes);
}

class Bench {
 public:
  Bench(RankProcess& process, const ScaleOptions& options)
      : session_(process.session), binding_(process.binding), options_(options) {}

  void run() {
    open();
    settle_device();
    measure();
    parallel::agree(session_, [&] {
      if (session_.rank() == 0) finish();
    });
  }

 private:
  void open() {
    parallel::agree(session_, [&] {
      spec_ = runtime::read_model(options_.model);
      source_ =
          open_weights(parse_weights(options_.weights, options_.model), options_.model, spec_);
      configs_ = config_folder(options_.configs);
      Problems problems;
      problems.passes([&] {
        layouts_ = scale_layouts(options_.layouts, spec_, static_cast<size_t>(session_.size()));
      });
      problems.passes([&] { report_.cases = cases_of(options_, spec_); });
      if (problems.found().size() == 1) throw Error(problems.found().front());
      problems.refuse("can't measure");
    });
  }

  void settle_device() {
    device_ = choose_device(session_, binding_, options_.device);
    parallel::agree(session_, [&] {
      if (device_.gpu) kernels::select_gpu(*device_.gpu);
    });
    const size_t mine = device_.gpu
                            ? gpu_rank_memory(session_, device_)
                            : machine_memory_bytes() / static_cast<size_t>(session_.node_size());
    const std::vector<size_t> memory = parallel::gather(session_, mine);
    rank_memory_ = *std::min_element(memory.begin(), memory.end());
    n_threads_ = threads_of_rank(session_, options_.threads);
    plan_.dtype = options_.dtype;
    plan_.numerics = options_.numerics.value_or(device_.gpu ? planner::Numerics::fast
                                                            : planner::Numerics::invariant);
    double gbps = 0;
    parallel::agree(session_, [&] { gbps = read_gbps(device_, n_threads_); });
    report_.read_gbps = parallel::gather(session_, gbps);
    report_.model = spec_.name;
    report_.device = device_.gpu ? device_.product : device_.name;
    report_.dtype = dtype_name(plan_.dtype.value_or(spec_.dtype));
    report_.numerics = planner::kNumericsNames[static_cast<size_t>(*plan_.numerics)];
    const DType dtype = plan_.dtype.value_or(spec_.dtype);
    for (ScaleCase& one : report_.cases) {
      StepCase step;
      step.prefill = one.prefill;
      step.batch = one.batch;
      step.tokens = one.tokens;
      one.read_bytes = static_cast<size_t>(step_bytes(spec_, {dtype, dtype, dtype, dtype}, step));
    }
  }

  void measure() {
    const ScaleJob job{session_,        spec_,           *source_,
                       device_,         options_.device, n_threads_,
                       rank_memory_,    plan_,           options_.prefill_chunk,
                       options_.n_steps};
    std::string why_not;
    const auto cluster = cluster_of(session_, binding_, device_, options_, configs_, why_not);
    std::vector<std::vector<int32_t>> first_tokens;
    for (size_t i = 0; i < layouts_.size(); ++i) {
      const ScaleMeasured measured =
          measure_layout(job, layouts_[i], report_.cases, kPartTag + static_cast<int>(i));
      parallel::agree(session_, [] {});
      if (session_.rank() != 0) continue;
      ScaleLayout& layout = report_.layouts.emplace_back();
      layout.layout = layout_text(layouts_[i]);
      layout.n_ranks = n_ranks(layouts_[i]);
      layout.failure = measured.failure;
      if (first_tokens.empty())
        first_tokens = measured.tokens;
      else if (!measured.tokens.empty())
        layout.same_tokens = measured.tokens == first_tokens;
      if (!measured.tokens.empty() && !layout.same_tokens) layout.same_tokens = true;  // itself
      for (const std::optional<double>& ms : measured.ms) {
        layout.figures.emplace_back();
        if (ms) layout.figures.back() = ScaleFigure{*ms, std::nullopt};
      }
    }
    if (session_.rank() == 0) predict(cluster, why_not);
  }

  void predict(const std::optional<planner::ClusterSpec>& cluster, const std::string& why_not) {
    report_.no_prediction = why_not;
    if (!cluster) return;
    ScaleSetting setting{*cluster, configs_, options_.machine_profile, {}};
    setting.plan.numerics = plan_.numerics;
    if (!device_.gpu) setting.plan.dtype = plan_.dtype;
    for (size_t i = 0; i < layouts_.size(); ++i)
      for (size_t c = 0; c < report_.cases.size(); ++c) {
        std::optional<ScaleFigure>& figure = report_.layouts[i].figures[c];
        if (!figure) continue;
        try {
          figure->predicted_ms = predicted_ms(
              setting, spec_, layouts_[i], report_.cases[c],
              schedule_of(report_.cases[c], layouts_[i].size(), options_.prefill_chunk));
        } catch (const Error& error) {
          report_.no_prediction = fmt::format("{}: {}", report_.layouts[i].layout, error.what());
        }
      }
  }

  void finish() const {
    if (options_.json)
      fmt::print("{}\n", scale_json(report_));
    else
      fmt::print("{}", scale_text(report_));
    if (std::fflush(stdout) != 0) throw run_error("cannot write to stdout");
    if (failed(report_))
      throw run_error("a layout failed or gave other tokens than one rank: see the table");
  }

  const parallel::MpiSession& session_;
  const parallel::Binding& binding_;
  const ScaleOptions& options_;
  planner::ModelSpec spec_;
  std::unique_ptr<runtime::TensorSource> source_;
  std::string configs_;
  std::vector<StageLayouts> layouts_;
  Device device_;
  size_t rank_memory_ = 0;
  size_t n_threads_ = 1;
  PlanOptions plan_;
  ScaleReport report_;
};

void run(const ScaleOptions& options) {
  const RankOptions rank = {true,
                            {.bind = options.bind,
                             .use_gpus = may_use_gpus(options.device),
                             .share_gpus = options.device.share_gpus},
                            options.verbose};
  as_rank(rank, [&](RankProcess& process) {
    verify_binding(process.session, process.binding, {});
    Bench(process, options).run();
  });
}

void add_formats(CLI::App& command, ScaleOptions& o) {
  command
      .add_option_function<std::string>(
          "--dtype",
          [&o](const std::string& text) {
            const size_t chosen = choose("--dtype", text, kDTypeNames);
            o.dtype.reset();
            if (chosen > 0) o.dtype = dtype_from_name(kDTypeNames[chosen]);
          },
          "Of weights, activations and KV: auto (the checkpoint's), bf16, f16 or f32")
      ->type_name("TYPE");
  command
      .add_option_function<std::string>(
          "--numerics",
          [&o](const std::string& text) {
            o.numerics =
                static_cast<planner::Numerics>(choose("--numerics", text, planner::kNumericsNames));
          },
          "Of what is timed: fast (default on GPUs) or invariant (default on CPUs); tokens are "
          "compared in invariant")
      ->type_name("MODE");
}

}  // namespace

void add_scale_command(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("scale", "Layouts of the job's ranks, one after another, side by side");
  const auto options = std::make_shared<ScaleOptions>();  // shared with the parser until it has run
  ScaleOptions& o = *options;
  command->add_option("--model", o.model, "A Hugging Face folder, or a YAML file of facts")
      ->required();
  command->add_option("--weights", o.weights, "checkpoint, or synthetic:SEED")
      ->capture_default_str();
  command
      ->add_option("--layouts", o.layouts,
                   "all (TP x PP that divide the ranks) and LAYERSxTP,… with blanks between them")
      ->type_name("LIST")
      ->capture_default_str();
  add_counts(*command, "--batch", o.batches, 1024, "Sequences of a decode step (1)");
  command
      ->add_option_function<std::string>(
          "--context",
          [&o](const std::string& text) {
            o.context = parse_count(text, "--context", size_t{1} << 20);
            if (*o.context == 0) throw input_error("--context 0: must be at least 1");
          },
          "Positions that each of them sees (2048, or the model's)")
      ->type_name("N");
  add_counts(*command, "--prefill", o.prefills, size_t{1} << 20,
             "Tokens of a prompt (2048, or the model's)");
  command
      ->add_option("--prefill-chunk", o.prefill_chunk,
                   "Tokens of it at a time, where the layout has several stages")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--steps", o.n_steps, "Decode steps timed a case")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add_formats(*command, o);
  command->add_option("--cluster", o.cluster,
                      "Of the predictions: a YAML file or a shipped one's name (default: these "
                      "hosts)");
  command->add_option("--machine-profile", o.machine_profile,
                      "Used instead of the shipped profile: what `weft bench calibrate` wrote");
  command->add_option("--configs", o.configs, "Folder of the shipped profiles");
  command->add_option("--threads", o.threads, "Threads of each rank (default: its share of cores)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("!--no-bind", o.bind, "Leave ranks on the CPUs where they were put");
  command->add_flag("--json", o.json, "One JSON object");
  command->add_flag("-v,--verbose", o.verbose, "Log more, on every rank");
  add_device_options(*command, o.device);
  command->callback([options] { run(*options); });
}

}  // namespace weft::launch
