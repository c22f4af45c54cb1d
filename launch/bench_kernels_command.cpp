// `weft bench kernels`: each kernel by itself at a model's shapes, beside what this machine's
// memory and arithmetic allow, measured first in the same run.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "kernels/gpu_device.h"
#include "launch/bench_command.h"
#include "launch/config_folder.h"
#include "launch/device_choice.h"
#include "launch/flag_words.h"
#include "launch/kernel_set.h"
#include "launch/rank_process.h"
#include "launch/run_options.h"
#include "parallel/binding.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/hf_config.h"

namespace weft::launch {
namespace {

struct KernelOptions {
  std::string model;  // empty: 33B's facts
  std::string configs;
  std::vector<std::string> ops;
  std::vector<size_t> batches, contexts = {2048}, prefills;  // empty: by backend
  size_t tp = 1;
  size_t threads = 0;
  DeviceOptions device;
  bool quick = false;
  bool json = false;
};

struct KernelRow {
  KernelOp op;
  KernelWork work;
  double us = 0;
  double bytes = 0;
  double flops = 0;
  double limit_us = 0;
};

KernelShapes shapes_of(const KernelOptions& options) {
  const std::string model = options.model.empty()
                                ? config_folder(options.configs) + "/models/deepseek-coder-33b.yaml"
                                : options.model;
  const planner::ModelSpec spec = runtime::read_model(model);
  const std::string problem = planner::tp_problem(spec, options.tp, false);
  if (!problem.empty()) throw input_error("{}", problem);
  return {spec, planner::shard_shapes(spec, options.tp, 0)};
}

std::vector<KernelWork> works_of(const KernelOptions& options, bool on_gpu) {
  const std::vector<size_t> usual_batches =
      on_gpu ? std::vector<size_t>{1, 8, 32, 128} : std::vector<size_t>{1, 8};
  const std::vector<size_t> usual_prefills = {on_gpu ? size_t{2048} : size_t{128}};
  std::vector<KernelWork> works;
  for (const size_t context : options.contexts)
    for (const size_t batch : options.batches.empty() ? usual_batches : options.batches)
      works.push_back({false, batch, context});
  for (const size_t tokens : options.prefills.empty() ? usual_prefills : options.prefills)
    works.push_back({true, 1, tokens});
  return works;
}

std::vector<KernelOp> ops_of(const KernelOptions& options) {
  std::vector<KernelOp> ops;
  for (const std::string& name : options.ops)
    ops.push_back(static_cast<KernelOp>(choose("--op", name, kKernelNames)));
  if (!ops.empty()) return ops;
  for (size_t i = 0; i < kKernelNames.size(); ++i) ops.push_back(static_cast<KernelOp>(i));
  return ops;
}

// Sampling and the head of two works with as many sequences are the same.
bool repeats(const std::vector<KernelRow>& rows, KernelOp op, const KernelWork& work) {
  const bool sees_context = op == KernelOp::attention || work.prefill;
  return !sees_context && std::any_of(rows.begin(), rows.end(), [&](const KernelRow& row) {
    return row.op == op && !row.work.prefill && row.work.batch == work.batch;
  });
}

std::vector<KernelRow> measure(KernelSet& set, const KernelShapes& shapes, const Ceilings& ceilings,
                               const std::vector<KernelOp>& ops,
                               const std::vector<KernelWork>& works) {
  std::vector<KernelRow> rows;
  for (const KernelOp op : ops)
    for (const KernelWork& work : works) {
      if (repeats(rows, op, work)) continue;
      KernelRow row{op, work};
      row.bytes = kernel_bytes(shapes, op, work);
      row.flops = kernel_flops(shapes, op, work);
      const double computing = ceilings.flops_per_s > 0 ? row.flops / ceilings.flops_per_s : 0;
      row.limit_us = 1e6 * std::max(row.bytes / ceilings.read_bytes_per_s, computing);
      row.us = set.time_us(op, work);
      rows.push_back(row);
    }
  return rows;
}

void print_table(const std::vector<KernelRow>& rows, const Ceilings& ceilings,
                 const KernelShapes& shapes, const std::string& device) {
  fmt::print("{}, tp {}, {}, {}; ceilings: {:.1f} GB/s", shapes.spec.name, shapes.shard.tp,
             dtype_name(shapes.spec.dtype), device, ceilings.read_bytes_per_s * 1e-9);
  if (ceilings.flops_per_s > 0) fmt::print(", {:.2f} TFLOP/s", ceilings.flops_per_s * 1e-12);
  fmt::print("\n{:<10} {:<24} {:>12} {:>10} {:>10} {:>12} {:>7}\n", "kernel", "work", "us", "MB",
             "GFLOP", "limit us", "ratio");
  for (const KernelRow& row : rows)
    fmt::print("{:<10} {:<24} {:>12.2f} {:>10.3f} {:>10.3f} {:>12.3f} {:>7.2f}\n",
               kKernelNames[static_cast<size_t>(row.op)], row.work.name(), row.us, row.bytes * 1e-6,
               row.flops * 1e-9, row.limit_us, row.us / row.limit_us);
}

void print_json(const std::vector<KernelRow>& rows, const Ceilings& ceilings,
                const KernelShapes& shapes, const std::string& device) {
  nlohmann::ordered_json out;
  out["model"] = shapes.spec.name;
  out["tp"] = shapes.shard.tp;
  out["device"] = device;
  out["read_gbps"] = ceilings.read_bytes_per_s * 1e-9;
  if (ceilings.flops_per_s > 0) out["product_tflops"] = ceilings.flops_per_s * 1e-12;
  out["kernels"] = nlohmann::ordered_json::array();
  for (const KernelRow& row : rows) {
    nlohmann::ordered_json one;
    one["kernel"] = kKernelNames[static_cast<size_t>(row.op)];
    one["work"] = row.work.prefill ? "prefill" : "decode";
    if (!row.work.prefill) one["batch"] = row.work.batch;
    one[row.work.prefill ? "tokens" : "context"] = row.work.tokens;
    one["us"] = row.us;
    one["bytes"] = row.bytes;
    one["flops"] = row.flops;
    one["limit_us"] = row.limit_us;
    one["ratio"] = row.us / row.limit_us;
    out["kernels"].push_back(std::move(one));
  }
  fmt::print("{}\n", out.dump());
}

void bench(const RankProcess& process, const KernelOptions& options) {
  const parallel::MpiSession& session = process.session;
  KernelShapes shapes;
  std::vector<KernelOp> ops;
  parallel::agree(session, [&] {
    shapes = shapes_of(options);
    ops = ops_of(options);
  });
  const Device device = choose_device(session, process.binding, options.device);
  const std::vector<KernelWork> works = works_of(options, device.gpu.has_value());
  const size_t n_threads = threads_of_rank(session, options.threads);
  kernels::ThreadPool pool(n_threads);
  kernels::Stream stream(pool);
  Rig rig(session, stream, static_cast<size_t>(session.size()), 0, options.quick);
  std::vector<KernelRow> rows;
  Ceilings ceilings;
  parallel::agree(session, [&] {
    if (device.gpu && session.size() > 1)
      throw input_error("bench kernels measures one GPU: start it with one rank, not {}",
                        session.size());
    if (device.gpu) kernels::select_gpu(*device.gpu);
    const std::unique_ptr<KernelSet> set =
        device.gpu ? make_gpu_kernels(shapes, works, pool) : make_cpu_kernels(shapes, works, rig);
    ceilings = set->ceilings();
    rows = measure(*set, shapes, ceilings, ops, works);
  });
  rig.close();
  if (session.rank() != 0) return;
  const std::string name = device.gpu ? device.product
                                      : fmt::format("CPU, {} rank{} at once, {} thread{} each",
                                                    session.size(), session.size() == 1 ? "" : "s",
                                                    n_threads, n_threads == 1 ? "" : "s");
  options.json ? print_json(rows, ceilings, shapes, name)
               : print_table(rows, ceilings, shapes, name);
}

void run(const KernelOptions& options) {
  const RankOptions rank{true, {.use_gpus = may_use_gpus(options.device)}, false};
  as_rank(rank, [&](RankProcess& process) {
    verify_binding(process.session, process.binding, {});
    bench(process, options);
  });
}

}  // namespace

void add_kernels_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand("kernels", "Each kernel at a model's shapes");
  const auto options =
      std::make_shared<KernelOptions>();  // shared with the parser until it has run
  command->add_option(
      "--model", options->model,
      "A Hugging Face folder, or a YAML file of facts (default: DeepSeek-Coder 33B)");
  command->add_option("--configs", options->configs, "Folder of the shipped models");
  command
      ->add_option("--op", options->ops,
                   fmt::format("Only these: {}", fmt::join(kKernelNames, ", ")))
      ->delimiter(',')
      ->type_name("NAME,…");
  add_counts(*command, "--batch", options->batches, 1024,
             "Sequences of a decode step (GPU 1,8,32,128; CPU 1,8)");
  add_counts(*command, "--context", options->contexts, size_t{1} << 20,
             "Positions that each of them sees (2048)");
  add_counts(*command, "--prefill", options->prefills, size_t{1} << 20,
             "Tokens of a prompt (GPU 2048; CPU 128)");
  command->add_option("--tp", options->tp, "Shapes of one of so many tensor-parallel ranks")
      ->check(CLI::Range(1, 1024));
  command->add_option("--threads", options->threads, "Threads of each rank on CPUs")
      ->check(CLI::Range(1, 1024));
  add_device_options(*command, options->device);
  command->add_flag("--quick", options->quick, "Fewer calls of each, on CPUs");
  command->add_flag("--json", options->json, "One JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace weft::launch
