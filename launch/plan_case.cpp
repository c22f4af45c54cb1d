#include "launch/plan_case.h"

#include <algorithm>
#include <cmath>

#include "launch/config_folder.h"
#include "planner/catalog.h"
#include "planner/host_costs.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::ClusterSpec;
using planner::NodeClass;
using planner::NumberFormat;

constexpr std::string_view kCpu = "cpu";

bool all_cpu(const ClusterSpec& cluster) {
  const auto is_cpu = [](const NodeClass& node) { return node.gpu == kCpu; };
  const auto n = std::count_if(cluster.nodes.begin(), cluster.nodes.end(), is_cpu);
  if (n != 0 && static_cast<size_t>(n) != cluster.nodes.size())
    throw input_error("cluster {}: CPU ranks and GPUs make no job together", cluster.name);
  return n != 0;
}

void check_flags(const SearchOptions& options, const PlanOptions& plan, bool on_cpu) {
  std::vector<std::string> found;
  const auto no = [&](bool given, std::string_view flag, std::string_view why) {
    if (given) found.push_back(fmt::format("{}: {}", flag, why));
  };
  no(plan.rank_memory_bytes.has_value(), "--gpu-memory-gib", "the cluster's file says it");
  no(plan.gpus_per_node.has_value(), "--gpus-per-node", "the cluster's file says it");
  no(plan.max_batch_tokens.has_value(), "--max-batch-tokens", "it follows from batch and chunk");
  no(plan.kv_blocks.has_value(), "--kv-blocks", "it follows from the memory");
  const bool given = plan.layout || plan.tp || plan.pp || !options.compare.empty();
  const std::string_view chosen = "the search chooses it; give a layout too to fix it";
  no(plan.max_sequences && !given, "--max-sequences", chosen);
  no(plan.prefill_chunk && !given, "--prefill-chunk", chosen);
  no(plan.batches_in_flight && !given, "--batches-in-flight", chosen);
  no(plan.dtype && !on_cpu, "--dtype", "GPUs compute in bf16; the storage is --weights's");
  no(on_cpu && options.engine != "weft", "--engine", "only weft runs on CPU ranks");
  const auto narrow = [](const std::optional<NumberFormat>& f) {
    return f && *f != NumberFormat::bf16;
  };
  no(on_cpu && (narrow(options.weights) || narrow(options.kv_key) || narrow(options.kv_value)),
     "--weights, --kv-key, --kv-value", "CPU ranks hold the type of --dtype");
  no(options.compare.size() == 1, "--compare", "give it twice or more");
  planner::refuse("plan", found);
}

// A GPU's share of the cards, at most what its own PCIe link carries.
planner::NodeLink link_of(const NodeClass& node) {
  const double share =
      static_cast<double>(node.nic_count) * node.nic_gbps / static_cast<double>(node.gpus);
  return {node.pcie_gbps > 0 ? std::min(share, node.pcie_gbps) : share, node.nic_latency_us};
}

// The profile's curves on this node's links: messages between its GPUs go over NVLink, over PCIe
// where there is none. CPU ranks exchange by memory, which the curves were measured on.
planner::MachineProfile on_links_of(const NodeClass& node, planner::MachineProfile machine) {
  const double gbps = node.nvlink_gbps > 0 ? node.nvlink_gbps : node.pcie_gbps;
  if (node.gpu != kCpu && gbps > 0) machine.rates.nvlink_gbps = gbps;
  return machine;
}

DType dtype_of(NumberFormat format) {
  constexpr DType dtypes[] = {DType::bf16, DType::fp8, DType::int8, DType::int4};
  return dtypes[static_cast<size_t>(format)];
}

planner::CostSetting make_setting(const SearchOptions& options, const planner::SearchRequest& of,
                                  planner::Catalog& catalog) {
  planner::CostSetting setting;
  setting.model = of.model;
  setting.engine = catalog.engine(options.engine);
  setting.engine_version = options.engine_version;
  setting.weights = options.weights.value_or(NumberFormat::bf16);
  const planner::EngineHabits& habits = habits_of(setting.engine, options.engine_version);
  const NumberFormat kv = default_kv(habits, setting.weights);
  setting.kv_key = options.kv_key.value_or(kv);
  setting.kv_value = options.kv_value.value_or(kv);
  std::optional<planner::MachineProfile> own;
  if (!options.machine_profile.empty())
    own = planner::read_machine_profile(options.machine_profile);
  bool used = false;
  for (const NodeClass& node : of.cluster.nodes) {
    const bool is_own = own && own->name == node.gpu;
    used |= is_own;
    const planner::MachineProfile& machine = is_own ? *own : catalog.machine(node.gpu);
    setting.nodes.push_back({on_links_of(node, machine), node.gpu_memory_gib, link_of(node)});
  }
  if (own && !used)
    throw input_error("{} is the profile of \"{}\", and cluster {} has none of it",
                      options.machine_profile, own->name, of.cluster.name);
  setting.prompt_tokens = of.workload.prompt_tokens;
  setting.output_tokens = of.workload.output_tokens;
  return setting;
}

void price(PlanCase& made, planner::CostSetting setting) {
  const planner::SearchRequest& request = made.request;
  made.model = std::make_unique<planner::CostModel>(std::move(setting));
  const planner::Workload& work = request.workload;
  made.serving = std::make_unique<planner::ContinuousBatching>(
      planner::ServedRequest{work.prompt_tokens, work.output_tokens}, made.model->habits());
  const size_t context = std::max(request.context, work.prompt_tokens + work.output_tokens);
  const planner::Numerics numerics =
      request.invariant ? planner::Numerics::invariant : planner::Numerics::fast;
  if (made.on_cpu)
    made.host = std::make_unique<planner::HostCosts>(*made.model, made.formats, numerics, context,
                                                     n_gpus(request.cluster));
}

// CPU curves are of products in bf16 and invariant numerics.
bool is_measured(const PlanCase& of) {
  return of.request.invariant && of.formats.weights == DType::bf16;
}

// Facts that no cost can be asked for.
void check_request(const planner::SearchRequest& request) {
  planner::refuse("model " + request.model.name, problems(request.model));
  const size_t tokens = request.workload.prompt_tokens + request.workload.output_tokens;
  if (tokens > request.model.context)
    throw input_error(
        "workload: {} prompt and {} output tokens are more than the context of {}: {}",
        request.workload.prompt_tokens, request.workload.output_tokens, request.model.name,
        request.model.context);
}

}  // namespace

PlanCase make_case(const SearchOptions& options, const PlanOptions& plan,
                   const planner::ModelSpec& spec, const std::string& configs) {
  return make_case_on(find_cluster(options.cluster, configs), options, plan, spec, configs);
}

PlanCase make_case_on(const ClusterSpec& cluster, const SearchOptions& options,
                      const PlanOptions& plan, const planner::ModelSpec& spec,
                      const std::string& configs) {
  PlanCase made;
  planner::SearchRequest& request = made.request;
  request.model = spec;
  request.cluster = cluster;
  request.workload = workload_of(options);
  request.context = plan.context.value_or(0);
  request.tp_across_nodes = options.tp_across_nodes;
  request.separate_groups = options.separate_groups;
  request.n_ranked = options.top;
  made.engine = options.engine;
  made.on_cpu = all_cpu(request.cluster);
  check_flags(options, plan, made.on_cpu);
  check_request(request);
  const planner::Numerics numerics =
      plan.numerics.value_or(made.on_cpu ? planner::Numerics::invariant : planner::Numerics::fast);
  request.invariant = numerics == planner::Numerics::invariant;
  planner::Catalog catalog(configs);
  planner::CostSetting setting = make_setting(options, request, catalog);
  const DType dtype = plan.dtype.value_or(spec.dtype);
  made.formats = made.on_cpu
                     ? planner::Formats{dtype, dtype, dtype, dtype}
                     : planner::Formats{dtype_of(setting.weights), DType::bf16,
                                        dtype_of(setting.kv_key), dtype_of(setting.kv_value)};
  price(made, std::move(setting));
  return made;
}

PlanCase scaled_case(const PlanCase& of, double factor) {
  PlanCase made;
  made.request = of.request;
  made.formats = of.formats;
  made.on_cpu = of.on_cpu;
  made.engine = of.engine;
  const auto scale = [&](size_t tokens) {
    return std::max<size_t>(1,
                            static_cast<size_t>(std::lround(static_cast<double>(tokens) * factor)));
  };
  planner::Workload& workload = made.request.workload;
  workload.prompt_tokens = scale(workload.prompt_tokens);
  workload.output_tokens = scale(workload.output_tokens);
  planner::CostSetting setting = of.model->setting();
  setting.prompt_tokens = workload.prompt_tokens;
  setting.output_tokens = workload.output_tokens;
  price(made, std::move(setting));
  return made;
}

bool is_extrapolated(const PlanCase& of, const planner::Layout& layout) {
  const planner::Schedule& schedule = layout.schedule;
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    const planner::PlacedStage& stage = layout.stages[s];
    if (of.model->decode_parts(stage.shape, schedule).extrapolated ||
        of.model->prefill_parts(stage.shape, schedule).extrapolated)
      return true;
    if (s + 1 == layout.stages.size()) break;
    const planner::PlacedStage& next = layout.stages[s + 1];
    const planner::EdgeShape edge = edge_between(stage, next);
    const bool outside = stage.role == next.role
                             ? of.model->edge_extrapolated(edge, schedule)
                             : of.model->handover_extrapolated(edge, stage.layers.size(), schedule);
    if (outside) return true;
  }
  return of.on_cpu && !is_measured(of);
}

}  // namespace weft::launch
