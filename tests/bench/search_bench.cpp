// How long the search takes with the planner's own cost model, the H100's profile and weft's
// engine: over GPUs (nodes of eight) and over layers, for each objective. The model is
// DeepSeek-Coder 33B, with other numbers of layers in the second table. The model's tables are
// filled anew each time.
#include <benchmark/benchmark.h>

#include <string>

#include "planner/catalog.h"
#include "planner/cost_model.h"
#include "planner/search.h"
#include "planner/serving_model.h"

namespace weft::planner {
namespace {

SearchRequest request_for(size_t gpus, size_t layers, Objective objective) {
  const std::string configs = std::string(WEFT_SOURCE_DIR) + "/configs/";
  SearchRequest request;
  request.model = read_model_yaml(configs + "models/deepseek-coder-33b.yaml");
  request.model.n_layers = layers;
  request.cluster = read_cluster_yaml(configs + "clusters/h100-2x8.yaml");
  request.cluster.nodes.front().count = std::max<size_t>(1, gpus / 8);
  request.workload.objective = objective;
  if (objective == Objective::gpus) request.workload.slo_tpot_ms = 40;
  if (objective == Objective::throughput) request.workload.concurrency.reset();
  return request;
}

void run(benchmark::State& state, const SearchRequest& request) {
  Catalog catalog(std::string(WEFT_SOURCE_DIR) + "/configs");
  CostSetting setting;
  setting.model = request.model;
  setting.engine = catalog.engine("weft");
  setting.prompt_tokens = request.workload.prompt_tokens;
  setting.output_tokens = request.workload.output_tokens;
  for (const NodeClass& node : request.cluster.nodes) {
    const double share =
        static_cast<double>(node.nic_count) * node.nic_gbps / static_cast<double>(node.gpus);
    setting.nodes.push_back(
        {catalog.machine(node.gpu), node.gpu_memory_gib, {share, node.nic_latency_us}});
  }
  const CostModel costs(std::move(setting));
  const ContinuousBatching serving({request.workload.prompt_tokens, request.workload.output_tokens},
                                   costs.habits());
  SearchResult result;
  for (auto _ : state) result = search(request, costs, serving);
  state.SetLabel(layout_text(result.best.layout));
  state.counters["bounds"] = static_cast<double>(result.n_bounds);
  state.counters["expanded"] = static_cast<double>(result.n_expanded);
}

// GPUs, layers, objective (0 latency, 1 throughput, 2 gpus).
void search_time(benchmark::State& state) {
  run(state, request_for(static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)),
                         static_cast<Objective>(state.range(2))));
}
BENCHMARK(search_time)
    ->ArgNames({"gpus", "layers", "objective"})
    ->ArgsProduct({{8, 16, 64, 128, 1024}, {62}, {0, 1, 2}})
    ->ArgsProduct({{16}, {16, 32, 128, 256}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

// The stated load on many GPUs: as many requests as 32 for each node.
void search_loaded(benchmark::State& state) {
  SearchRequest request =
      request_for(static_cast<size_t>(state.range(0)), 62, static_cast<Objective>(state.range(1)));
  request.workload.concurrency = static_cast<size_t>(state.range(0)) * 4;
  run(state, request);
}
BENCHMARK(search_loaded)
    ->ArgNames({"gpus", "objective"})
    ->ArgsProduct({{16, 128, 1024}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond);

// Nodes of up to four kinds: eight, seven, four and twelve GPUs, four nodes of each.
void search_mixed(benchmark::State& state) {
  SearchRequest request = request_for(32, 62, static_cast<Objective>(state.range(1)));
  const size_t gpus[] = {8, 7, 4, 12};
  for (size_t c = 1; c < static_cast<size_t>(state.range(0)); ++c) {
    request.cluster.nodes.push_back(request.cluster.nodes.front());
    request.cluster.nodes.back().name = "class" + std::to_string(c);
    request.cluster.nodes.back().gpus = gpus[c];
    request.cluster.nodes.back().gpu = c % 2 == 1 ? "h200-sxm" : "h100-sxm";
    request.cluster.nodes.back().gpu_memory_gib = c % 2 == 1 ? 139.8 : 79.6;
  }
  run(state, request);
}
BENCHMARK(search_mixed)
    ->ArgNames({"classes", "objective"})
    ->ArgsProduct({{2, 3, 4}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond);

// Also replicas with prefill and decode groups.
void search_separate_groups(benchmark::State& state) {
  SearchRequest request =
      request_for(static_cast<size_t>(state.range(0)), 62, static_cast<Objective>(state.range(1)));
  request.separate_groups = true;
  run(state, request);
}
BENCHMARK(search_separate_groups)
    ->ArgNames({"gpus", "objective"})
    ->ArgsProduct({{8, 16}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft::planner
