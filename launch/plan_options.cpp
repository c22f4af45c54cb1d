// Flags to a plan: by layout, from a file with lowered limits, or one stage over all ranks.
#include "launch/plan_options.h"

#include <CLI/CLI.hpp>

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "launch/flag_words.h"
#include "planner/memory_model.h"
#include "planner/plan_fields.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::LimitField;
using planner::Plan;

constexpr std::string_view kDTypeNames[] = {"auto", "bf16", "f16", "f32"};
constexpr double kMostGib = 1e6;
constexpr size_t kSystemShare = 16;  // of memory: one part for the system

// A limit's flag beside its entry in the table of limits: "max_batch_tokens", --max-batch-tokens.
struct LimitFlag {
  std::string_view key;
  std::optional<size_t> PlanOptions::*value;
};
constexpr LimitFlag kLimitFlags[] = {
    {"context", &PlanOptions::context},
    {"max_sequences", &PlanOptions::max_sequences},
    {"max_batch_tokens", &PlanOptions::max_batch_tokens},
    {"prefill_chunk", &PlanOptions::prefill_chunk},
    {"batches_in_flight", &PlanOptions::batches_in_flight},
    {"kv_blocks", &PlanOptions::kv_blocks},
};

std::string flag_of(std::string_view key) {
  std::string flag = "--" + std::string(key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

const LimitField& limit_of(std::string_view key) {
  for (const LimitField& limit : planner::kLimitFields)
    if (limit.key == key) return limit;
  throw std::logic_error("no such limit");
}

CLI::Option* add_count(CLI::App& command, const std::string& flag, std::optional<size_t>& to,
                       size_t most, const std::string& what) {
  const auto take = [flag, most, &to](const std::string& text) {
    const size_t value = parse_count(text, flag, most);
    if (value == 0) throw input_error("{} 0: must be at least 1", flag);
    to = value;
  };
  return command.add_option_function<std::string>(flag, take, what)->type_name("N");
}

void add_formats(CLI::App& command, PlanOptions& options) {
  command
      .add_option_function<std::string>(
          "--dtype",
          [&options](const std::string& text) {
            const size_t chosen = choose("--dtype", text, kDTypeNames);
            options.dtype.reset();
            if (chosen > 0) options.dtype = dtype_from_name(kDTypeNames[chosen]);
          },
          "Of weights, activations and KV: auto (the checkpoint's), bf16, f16 or f32")
      ->type_name("TYPE");
  command
      .add_option_function<std::string>(
          "--numerics",
          [&options](const std::string& text) {
            options.numerics =
                static_cast<planner::Numerics>(choose("--numerics", text, planner::kNumericsNames));
          },
          "invariant (the same bits in every layout; default) or fast")
      ->type_name("MODE");
}

std::vector<planner::StageLayout> layout_of(const PlanOptions& options,
                                            const planner::ModelSpec& spec, size_t world_size) {
  if (options.layout) return planner::parse_layout(*options.layout);
  if (options.tp || options.pp)
    return planner::balanced_layout(spec, options.tp.value_or(1), options.pp.value_or(1));
  if (world_size == 0)
    throw input_error(
        "the layout is missing: give --cluster to search for the best one on it, or --layout "
        "LAYERSxTP,… (as in 4x2,2x2) or --tp T --pp P");
  return {{spec.n_layers, world_size}};
}

planner::ManualOptions manual_options(const PlanOptions& options, const planner::ModelSpec& spec) {
  planner::ManualOptions manual;
  const DType dtype = options.dtype.value_or(spec.dtype);
  manual.formats = {dtype, dtype, dtype, dtype};
  manual.numerics = options.numerics.value_or(planner::Numerics::invariant);
  manual.context = options.context;
  manual.max_sequences = options.max_sequences;
  manual.max_batch_tokens = options.max_batch_tokens;
  manual.prefill_chunk = options.prefill_chunk;
  manual.batches_in_flight = options.batches_in_flight;
  manual.kv_blocks = options.kv_blocks;
  manual.backend = options.backend;
  manual.gpus_per_node = options.gpus_per_node.value_or(manual.gpus_per_node);
  return manual;
}

std::string ranks_problem(const Plan& plan, size_t world_size) {
  const size_t wanted = planner::world_size(plan);
  std::string text =
      fmt::format("layout {} needs {} ranks and the job has {}: start it with mpirun -n {}",
                  layout_text(plan), wanted, world_size, wanted);
  const size_t n = plan.replicas.empty() ? 1 : plan.replicas.front().count;
  if (n > 1) text += fmt::format("; a job runs one replica, so start {} of them", n);
  return text;
}

// What each rank may use: as the user says, else as the caller says, else its share of this
// machine.
size_t memory_of_rank(const PlanOptions& options, size_t rank_memory_bytes, size_t n_ranks) {
  if (options.rank_memory_bytes) return *options.rank_memory_bytes;
  if (rank_memory_bytes > 0) return rank_memory_bytes;
  return machine_memory_bytes() / std::max<size_t>(1, n_ranks);
}

Plan plan_of_layout(const PlanOptions& options, const planner::ModelSpec& spec, size_t world_size,
                    size_t rank_memory_bytes) {
  const std::vector<planner::StageLayout> layout = layout_of(options, spec, world_size);
  size_t n_ranks = 0;
  for (const planner::StageLayout& stage : layout) n_ranks += stage.tp;
  planner::ManualOptions manual = manual_options(options, spec);
  manual.rank_memory_bytes = memory_of_rank(options, rank_memory_bytes, n_ranks);
  Plan plan = planner::manual_plan(spec, layout, manual);
  if (world_size != 0 && n_ranks != world_size) throw Error(ranks_problem(plan, world_size));
  return plan;
}

void lower_limits(const PlanOptions& options, Plan& plan, std::vector<std::string>& found) {
  for (const LimitFlag& flag : kLimitFlags) {
    const std::optional<size_t>& wanted = options.*flag.value;
    if (!wanted) continue;
    size_t& limit = plan.limits.*limit_of(flag.key).field;
    if (*wanted > limit)
      found.push_back(
          fmt::format("{} {} is above the plan's {}: a flag may lower a limit, never raise it",
                      flag_of(flag.key), *wanted, limit));
    limit = std::min(limit, *wanted);
  }
  if (!options.prefill_chunk)
    plan.limits.prefill_chunk = std::min(plan.limits.prefill_chunk, plan.limits.max_batch_tokens);
}

void check_fixed(const PlanOptions& options, const Plan& plan, std::vector<std::string>& found) {
  for (const planner::FormatField& format : planner::kFormatFields) {
    const DType dtype = plan.formats.*format.field;
    if (options.dtype && *options.dtype != dtype)
      found.push_back(fmt::format("--dtype {} is not the plan's {} {}: a flag never changes it",
                                  dtype_name(*options.dtype), format.key, dtype_name(dtype)));
  }
  if (options.numerics && *options.numerics != plan.numerics)
    found.push_back(fmt::format("--numerics {} is not the plan's {}: a flag never changes it",
                                planner::kNumericsNames[static_cast<size_t>(*options.numerics)],
                                planner::kNumericsNames[static_cast<size_t>(plan.numerics)]));
}

Plan plan_of_file(const PlanOptions& options, const planner::ModelSpec& spec, size_t world_size,
                  size_t rank_memory_bytes) {
  Plan plan = planner::read_plan_yaml(*options.plan_file);
  std::vector<std::string> found;
  lower_limits(options, plan, found);
  check_fixed(options, plan, found);
  for (std::string& problem : planner::problems(plan, spec)) found.push_back(std::move(problem));
  const size_t n_ranks = planner::world_size(plan);
  if (world_size != 0 && n_ranks != world_size) found.push_back(ranks_problem(plan, world_size));
  // Another model's sizes would only mislead.
  const bool same_model = plan.facts_sha256 == facts_sha256(spec);
  const size_t memory = memory_of_rank(options, rank_memory_bytes, n_ranks);
  if (same_model)
    for (std::string& problem : planner::memory_problems(spec, plan, memory, options.backend))
      found.push_back(std::move(problem));
  planner::refuse("plan " + *options.plan_file, found);
  planner::predict_memory(spec, plan, options.backend);
  return plan;
}

// The container's limit, where there is one: a missing file or the word "max" says none.
size_t container_limit_bytes() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    size_t limit = 0;
    if (file >> limit && limit > 0) return limit;
  }
  return std::numeric_limits<size_t>::max();
}

}  // namespace

void add_memory_option(CLI::App& command, PlanOptions& options) {
  command
      .add_option_function<double>(
          "--gpu-memory-gib",
          [&options](double gib) {
            if (!(gib > 0) || gib > kMostGib)
              throw input_error("--gpu-memory-gib {} is not above 0 and at most {}", gib, kMostGib);
            options.rank_memory_bytes = static_cast<size_t>(gib * 0x1p30);
          },
          "Memory of one rank (default: this machine's, shared by the ranks)")
      ->type_name("GIB");
}

void add_layout_options(CLI::App& command, PlanOptions& options) {
  CLI::Option* layout =
      command
          .add_option("--layout", options.layout, "Stages as LAYERSxTP, first stage first: 4x2,2x2")
          ->type_name("STAGES");
  CLI::Option* tp = add_count(command, "--tp", options.tp, planner::kMostSlots,
                              "Tensor-parallel ranks of every stage (default 1)");
  CLI::Option* pp = add_count(command, "--pp", options.pp, planner::kMostPlanLayers,
                              "Balanced pipeline stages (default 1)");
  layout->excludes(tp)->excludes(pp);
  add_formats(command, options);
}

void add_plan_options(CLI::App& command, PlanOptions& options) {
  add_layout_options(command, options);
  for (const LimitFlag& flag : kLimitFlags) {
    const LimitField& limit = limit_of(flag.key);
    add_count(command, flag_of(flag.key), options.*flag.value, limit.most,
              "Limit: " + std::string(limit.what));
  }
  add_memory_option(command, options);
  add_count(command, "--gpus-per-node", options.gpus_per_node, planner::kMostSlots,
            "Slots of a node (default 8)");
}

void add_plan_file_option(CLI::App& command, PlanOptions& options) {
  CLI::Option* file = command
                          .add_option("--plan", options.plan_file,
                                      "A plan; flags may lower its limits, never change its layout")
                          ->type_name("FILE");
  for (const char* flag : {"--layout", "--tp", "--pp", "--gpus-per-node"})
    file->excludes(command.get_option(flag));
}

planner::Plan make_plan(const PlanOptions& options, const planner::ModelSpec& spec,
                        size_t world_size, size_t rank_memory_bytes) {
  return options.plan_file ? plan_of_file(options, spec, world_size, rank_memory_bytes)
                           : plan_of_layout(options, spec, world_size, rank_memory_bytes);
}

size_t machine_memory_bytes() {
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t all = std::min(pages * page_bytes, container_limit_bytes());
  return all - all / kSystemShare;
}

}  // namespace weft::launch
