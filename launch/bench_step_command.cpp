// `weft bench step`: decode steps and prefills of the whole model on this machine, beside what its
// memory and its matrix units allow, and beside what the planner says.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "kernels/gpu_device.h"
#include "launch/bench_cases.h"
#include "launch/bench_command.h"
#include "launch/config_folder.h"
#include "launch/device_choice.h"
#include "launch/model_source.h"
#include "launch/plan_options.h"
#include "launch/rank_process.h"
#include "parallel/binding.h"
#include "parallel/gather.h"
#include "planner/memory_model.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/hf_config.h"
#include "runtime/step_driver.h"

namespace weft::launch {
namespace {

struct BenchOptions {
  std::string model;
  std::string weights = "checkpoint";
  std::string configs;
  PlanOptions plan;
  DeviceOptions device;
  std::vector<size_t> batches = {1, 8, 32, 128};
  std::vector<size_t> contexts = {2048};
  std::vector<size_t> prefills;
  size_t n_steps = 24;
  bool json = false;
};

constexpr size_t kPrefills = 3;

std::vector<StepCase> cases_of(const BenchOptions& options) {
  std::vector<StepCase> cases;
  for (const size_t context : options.contexts)
    for (const size_t batch : options.batches) {
      StepCase& made = cases.emplace_back();
      made.batch = batch;
      made.tokens = context;
      made.kv_blocks = runtime::StepDriver::decode_blocks(batch, context, options.n_steps);
    }
  for (const size_t tokens : options.prefills) {
    StepCase& made = cases.emplace_back();
    made.prefill = true;
    made.tokens = tokens;
    made.kv_blocks = runtime::StepDriver::prefill_blocks(tokens);
  }
  return cases;
}

// A plan whose limits hold the cases, with as many KV blocks as the largest that fits takes.
planner::Plan plan_of(const BenchOptions& options, const planner::ModelSpec& spec, size_t n_ranks,
                      size_t rank_memory_bytes, std::vector<StepCase>& cases) {
  PlanOptions asked = options.plan;
  size_t rows = 1, sequences = 1, context = 1;
  for (const StepCase& one : cases) {
    sequences = std::max(sequences, one.batch);
    rows = std::max(rows, one.prefill ? one.tokens : one.batch);
    context = std::max(context, one.kv_blocks / one.batch * planner::kKvBlockTokens);
  }
  asked.context = context;
  asked.max_sequences = sequences;
  asked.max_batch_tokens = asked.prefill_chunk = std::max(rows, sequences);
  if (!asked.numerics) asked.numerics = planner::Numerics::fast;
  asked.kv_blocks = (context - 1) / planner::kKvBlockTokens + 1;  // one sequence's, to begin with
  asked.backend = planner::Backend::cuda;
  planner::Plan plan = make_plan(asked, spec, n_ranks, rank_memory_bytes);
  size_t most = plan.limits.kv_blocks;
  for (StepCase& one : cases) {
    plan.limits.kv_blocks = one.kv_blocks;
    one.fits = planner::memory_problems(spec, plan, rank_memory_bytes, asked.backend).empty();
    if (one.fits) most = std::max(most, one.kv_blocks);
  }
  plan.limits.kv_blocks = most;
  planner::predict_memory(spec, plan, asked.backend);
  return plan;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_table(const std::vector<StepCase>& cases, const Ceilings& ceilings,
                 const planner::ModelSpec& spec, const planner::Plan& plan, const MemoryUse& use) {
  fmt::print("ceilings: reads {:.2f} TB/s", ceilings.read_bytes_per_s * 1e-12);
  if (ceilings.flops_per_s > 0)
    fmt::print(", products {:.0f} TFLOP/s", ceilings.flops_per_s * 1e-12);
  fmt::print("\n{:<32} {:>12} {:>10} {:>7} {:>13}\n", "step", "measured ms", "limit ms", "ratio",
             "predicted ms");
  for (const StepCase& one : cases) {
    if (!one.fits) {
      const double gib = step_bytes(spec, plan.formats, one) / 0x1p30;
      fmt::print("{:<32} does not fit: weights and KV alone take {:.1f} GiB\n", one.name(), gib);
      continue;
    }
    fmt::print("{:<32} {:>12.3f} {:>10.3f} {:>7.3f} {:>13}\n", one.name(), one.measured_ms,
               one.limit_ms, one.measured_ms / one.limit_ms,
               one.predicted_ms ? fmt::format("{:.3f}", *one.predicted_ms) : "-");
  }
  fmt::print("{}\n", memory_text(use));
}

void print_json(const std::vector<StepCase>& cases, const Ceilings& ceilings,
                const planner::ModelSpec& spec, const Device& device, const MemoryUse& use) {
  nlohmann::ordered_json out;
  out["model"] = spec.name;
  out["gpu"] = device.product;
  out["read_gbps"] = ceilings.read_bytes_per_s * 1e-9;
  if (ceilings.flops_per_s > 0) out["product_tflops"] = ceilings.flops_per_s * 1e-12;
  out["steps"] = nlohmann::ordered_json::array();
  for (const StepCase& one : cases) {
    nlohmann::ordered_json row;
    row["work"] = one.prefill ? "prefill" : "decode";
    row["batch"] = one.batch;
    row[one.prefill ? "tokens" : "context"] = one.tokens;
    row["fits"] = one.fits;
    if (one.fits) {
      row["measured_ms"] = one.measured_ms;
      row["limit_ms"] = one.limit_ms;
      row["ratio"] = one.measured_ms / one.limit_ms;
    }
    if (one.predicted_ms) row["predicted_ms"] = *one.predicted_ms;
    out["steps"].push_back(row);
  }
  out["memory"] = {{"peak_bytes", use.peak_bytes},
                   {"planned_bytes", use.planned_bytes()},
                   {"ratio", use.ratio()}};
  fmt::print("{}\n", out.dump());
}

void measure(const BenchOptions& options, runtime::Engine& engine, const planner::ModelSpec& spec,
             const planner::Plan& plan, const Device& device, const Ceilings& ceilings,
             std::vector<StepCase>& cases) {
  engine.fill_cache();
  MemoryUse use{0, plan.predicted.rank_memory.front(), kGpuReservedBytes, device.n_sharing};
  const auto look = [&] {
    const kernels::GpuMemoryState state = kernels::gpu_memory();
    use.peak_bytes = std::max(use.peak_bytes, state.total_bytes - state.free_bytes);
  };
  look();
  runtime::StepDriver driver(engine, spec, plan.limits);
  const std::string configs = config_folder(options.configs);
  for (StepCase& one : cases) {
    one.limit_ms = step_limit_ms(spec, plan.formats, one, ceilings);
    one.predicted_ms = predicted_step_ms(spec, one, device.product, configs);
    if (!one.fits) continue;
    one.measured_ms =
        median(one.prefill ? driver.prefill_ms(one.tokens, kPrefills)
                           : driver.decode_ms(one.batch, one.tokens, options.n_steps));
    look();
    spdlog::info("{}: {:.3f} ms", one.name(), one.measured_ms);
  }
  options.json ? print_json(cases, ceilings, spec, device, use)
               : print_table(cases, ceilings, spec, plan, use);
}

void bench(const parallel::MpiSession& session, const parallel::Binding& binding,
           const BenchOptions& options) {
  planner::ModelSpec spec;
  std::unique_ptr<runtime::TensorSource> source;
  parallel::agree(session, [&] {
    spec = runtime::read_model(options.model);
    source = open_weights(parse_weights(options.weights, options.model), options.model, spec);
  });
  const Device device = choose_device(session, binding, options.device);
  parallel::agree(session, [&] {
    if (!device.gpu) throw input_error("bench step measures GPUs, and there is none here");
    kernels::select_gpu(*device.gpu);
  });
  const std::vector<size_t> memory = parallel::gather(session, gpu_rank_memory(session, device));
  const size_t rank_memory = *std::min_element(memory.begin(), memory.end());
  std::vector<StepCase> cases = cases_of(options);
  planner::Plan plan;
  parallel::agree(session, [&] {
    plan = plan_of(options, spec, static_cast<size_t>(session.size()), rank_memory, cases);
  });
  Ceilings ceilings;  // before the engine takes the memory
  parallel::agree(session, [&] {
    if (session.rank() == 0) ceilings = measure_ceilings();
  });
  runtime::EngineOptions engine_options;
  engine_options.gpu = device.gpu;
  engine_options.shares_gpu = device.n_sharing > 1;
  engine_options.transport = options.device.transport;
  engine_options.graphs = options.device.graphs;
  runtime::Engine engine(session, spec, plan, *source, engine_options);
  if (session.rank() == 0) {
    spdlog::info("weights after {:.2f} s", engine.load_report().seconds);
    measure(options, engine, spec, plan, device, ceilings, cases);
    engine.stop_followers();
  } else {
    engine.fill_cache();
    engine.follow();
  }
  engine.close();
}

void run(const BenchOptions& options) {
  const RankOptions rank{
      true,
      {.use_gpus = may_use_gpus(options.device), .share_gpus = options.device.share_gpus},
      false};
  as_rank(rank, [&](RankProcess& process) {
    verify_binding(process.session, process.binding, {});
    bench(process.session, process.binding, options);
  });
}

}  // namespace

void add_step_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("step", "Decode steps and prefills of a whole model");
  const auto options = std::make_shared<BenchOptions>();  // shared with the parser until it has run
  command->add_option("--model", options->model, "A Hugging Face folder, or a YAML file of facts")
      ->required();
  command->add_option("--weights", options->weights, "checkpoint, or synthetic:SEED")
      ->capture_default_str();
  command->add_option("--configs", options->configs, "Folder of the shipped profiles");
  add_layout_options(*command, options->plan);
  add_memory_option(*command, options->plan);
  add_device_options(*command, options->device);
  add_counts(*command, "--batch", options->batches, 1024,
             "Sequences of a decode step (1,8,32,128)");
  add_counts(*command, "--context", options->contexts, size_t{1} << 20,
             "Positions that each of them sees (2048)");
  add_counts(*command, "--prefill", options->prefills, size_t{1} << 20,
             "Tokens of a prompt that is computed in one batch");
  command->add_option("--steps", options->n_steps, "Decode steps timed a case")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace weft::launch
