// The search against brute force over random small instances: the same optimum, ties included.
#include "planner/search.h"

#include <random>

#include "tests/planner/brute_force.h"
#include "tests/planner/examples.h"
#include "tests/planner/random_costs.h"

namespace weft::planner {
namespace {

struct Instance {
  SearchRequest request;
  RandomCostOptions costs;
};

class RandomInstances {
 public:
  explicit RandomInstances(uint64_t seed) : random_(seed) {}

  Instance next() {
    Instance made;
    made.request.model = model();
    made.request.cluster = cluster();
    made.request.workload = workload();
    made.request.separate_groups = one_in(3);
    made.request.tp_across_nodes = one_in(5);
    made.request.max_stages = made.request.separate_groups ? from(2, 3) : from(1, 4);
    if (one_in(5)) made.request.context = from(1, 4096);
    made.costs.seed = random_();
    made.costs.spread = one_in(3) ? 2 : 12;  // two: many ties
    made.costs.edge_spread = one_in(3) ? 1 : 6;
    made.costs.layer_bytes = from(2, 12);
    made.costs.memory = from(30, 220);
    made.costs.shares_hosts = one_in(4);
    return made;
  }

 private:
  size_t from(size_t least, size_t most) { return least + random_() % (most - least + 1); }
  bool one_in(size_t n) { return random_() % n == 0; }

  ModelSpec model() {
    static constexpr size_t heads[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 2}};
    ModelSpec spec = small_spec();
    const auto& [n_heads, n_kv_heads] = heads[random_() % std::size(heads)];
    spec.n_heads = n_heads;
    spec.n_kv_heads = n_kv_heads;
    spec.n_layers = from(1, 5);
    spec.context = 8192;
    if (one_in(5)) {
      spec.architecture = "MixtralForCausalLM";
      spec.n_experts = 4;
      spec.experts_per_token = 2;
    }
    return spec;
  }

  ClusterSpec cluster() {
    ClusterSpec made;
    made.name = "random";
    const size_t n_classes = one_in(12) ? 4 : one_in(3) ? 2 : 1;
    for (size_t c = 0; c < n_classes; ++c) {
      NodeClass node;
      node.name = fmt::format("class{}", c);
      node.count = from(1, 3);
      node.gpus = from(1, 4);
      node.gpu = "h100-sxm";
      node.gpu_memory_gib = 80;
      node.nvlink_gbps = 450;
      node.nic_count = 1;
      node.nic_gbps = 50;
      made.nodes.push_back(node);
    }
    return made;
  }

  Workload workload() {
    Workload made;
    made.objective = static_cast<Objective>(random_() % 3);
    made.prompt_tokens = from(1, one_in(2) ? 100 : 2000);
    made.output_tokens = from(1, 100);
    made.concurrency = from(1, 9);
    if (made.objective == Objective::throughput && one_in(2)) made.concurrency.reset();
    if (one_in(3) || made.objective == Objective::gpus)
      made.slo_ttft_ms = static_cast<double>(from(1, 40));
    if (one_in(3)) made.slo_tpot_ms = static_cast<double>(from(1, 40)) / 4;
    if (one_in(4)) made.max_gpus = from(1, 8);
    return made;
  }

  std::mt19937_64 random_;
};

std::array<double, 3> score_of(const Candidate& made, Objective objective) {
  const auto gpus = static_cast<double>(made.gpus);
  if (objective == Objective::throughput) return {-made.tokens_per_s, gpus, made.traffic_bytes};
  if (objective == Objective::gpus) return {gpus, made.latency_ms, made.traffic_bytes};
  return {made.latency_ms, gpus, made.traffic_bytes};
}

// Compares one instance; what it said, for failures. The seed alone makes the instance again.
void compare(uint64_t seed, size_t& n_found, size_t& n_tried) {
  const Instance instance = RandomInstances(seed).next();
  const SearchRequest& request = instance.request;
  const RandomCosts costs(instance.costs);
  const SimpleServing serving(request.workload.prompt_tokens, request.workload.output_tokens);
  BruteForce brute(request, costs, serving);
  const std::array<double, 3> expected = brute.best();
  n_tried += brute.n_tried();
  const SearchResult result = search(request, costs, serving);
  ASSERT_EQ(result.found, std::isfinite(expected[0])) << result.verdict;
  ASSERT_TRUE(result.proved);
  if (!result.found) return;
  ++n_found;
  const std::array<double, 3> score = score_of(result.best, request.workload.objective);
  for (size_t i = 0; i < score.size(); ++i)  // sums over layers are rounded in another order
    ASSERT_NEAR(score[i], expected[i], 1e-13 * std::abs(expected[i]))
        << layout_text(result.best.layout);
  const Candidate again = evaluate(request, costs, serving, result.best.layout);
  ASSERT_EQ(score_of(again, request.workload.objective), score);
}

TEST(Search, FindsTheOptimumOfBruteForce) {
  constexpr size_t kInstances = 2500;
  const char* given = std::getenv("WEFT_SEARCH_SEED");  // runs that instance alone
  const char* more = std::getenv("WEFT_SEARCH_FIRST");  // other instances than those of every run
  const uint64_t first = std::strtoull(given != nullptr  ? given
                                       : more != nullptr ? more
                                                         : "1",
                                       nullptr, 10);
  size_t n_found = 0, n_tried = 0;
  for (size_t i = 0; i < (given != nullptr ? 1 : kInstances); ++i) {
    SCOPED_TRACE(fmt::format("WEFT_SEARCH_SEED={}", first + i));
    compare(first + i, n_found, n_tried);
    if (HasFatalFailure()) return;
  }
  if (given != nullptr) return;
  EXPECT_GT(n_found, kInstances / 4);
  EXPECT_GT(n_tried / kInstances, 100u);
}

}  // namespace
}  // namespace weft::planner
