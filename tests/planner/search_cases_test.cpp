// What a user meets: a 33B model on real shapes of cluster, limits that can't be met, refusals with
// their numbers, plans that read back, and requests that are refused.
#include <algorithm>
#include <cmath>
#include <set>

#include "planner/plan.h"
#include "planner/search.h"
#include "tests/planner/examples.h"
#include "tests/planner/random_costs.h"
#include "tests/planner/roofline_costs.h"

namespace weft::planner {
namespace {

ClusterSpec cluster(const std::string& name) {
  return read_cluster_yaml(std::string(WEFT_SOURCE_DIR) + "/configs/clusters/" + name + ".yaml");
}

SearchRequest request_33b(const std::string& cluster_name) {
  SearchRequest request;
  request.model = model("deepseek-coder-33b");
  request.cluster = cluster(cluster_name);
  return request;
}

SearchResult run(const SearchRequest& request) {
  const auto prompt = static_cast<double>(request.workload.prompt_tokens);
  return search(request, RooflineCosts(request.model, request.cluster, prompt),
                SimpleServing(request.workload.prompt_tokens, request.workload.output_tokens));
}

Candidate run(const SearchRequest& request, const Layout& layout) {
  const auto prompt = static_cast<double>(request.workload.prompt_tokens);
  return evaluate(request, RooflineCosts(request.model, request.cluster, prompt),
                  SimpleServing(request.workload.prompt_tokens, request.workload.output_tokens),
                  layout);
}

const Refusal& refusal(const SearchResult& result, const std::string& layout) {
  static const Refusal none = {"", "not refused", ""};
  for (const Refusal& refused : result.refused)
    if (refused.layout == layout) return refused;
  return none;
}

TEST(SearchCases, RanksAndExplainsA33BModelOnTwoNodes) {
  SearchRequest request = request_33b("h100-2x8");
  request.cluster.nodes[0].gpu_memory_gib = 60;  // too little for one GPU
  const SearchResult result = run(request);
  ASSERT_TRUE(result.found);
  EXPECT_TRUE(result.proved);
  EXPECT_LE(result.best.gpus, 16u);
  ASSERT_EQ(result.ranked.size(), request.n_ranked);
  EXPECT_EQ(result.ranked.front().layout, result.best.layout);
  for (const Candidate& other : result.ranked) EXPECT_GE(other.latency_ms, result.best.latency_ms);
  EXPECT_SAYS(result.verdict, layout_text(result.best.layout) + " beats ");
  EXPECT_SAYS(result.verdict, ": latency ");
  EXPECT_EQ(refusal(result, "TP 16").reason, "does not divide 56 heads; legal: 1 2 4 8 56");
  EXPECT_EQ(refusal(result, "TP 56").reason, "16 GPUs may be used");
  EXPECT_SAYS(refusal(result, "TP 1 x PP 1").reason, "stage 0: short ");
  EXPECT_SAYS(refusal(result, "TP 1 x PP 1").reason, " of 60.0 GiB");
  EXPECT_EQ(refusal(result, "TP 1 x PP 1").remedy, "TP 1 x PP 2");
  EXPECT_EQ(to_text(result.grid),
            "TP 1 2 4 8; 1 to 16 stages of a replica; 1 to 16 replicas; batch 1 2 4 8 16 32; "
            "batches in flight 1 to 32; prefill chunk 512 1024 2048");
}

TEST(SearchCases, NothingOnTheFrontIsBeaten) {
  const SearchResult result = run(request_33b("h100-2x8"));
  ASSERT_GE(result.front.size(), 3u);
  for (const Candidate& a : result.front)
    for (const Candidate& b : result.front)
      EXPECT_FALSE(a.latency_ms < b.latency_ms && a.tokens_per_s > b.tokens_per_s &&
                   a.gpus < b.gpus);
  const auto fastest =
      std::min_element(result.front.begin(), result.front.end(),
                       [](const auto& a, const auto& b) { return a.latency_ms < b.latency_ms; });
  EXPECT_EQ(fastest->latency_ms, result.best.latency_ms);
}

TEST(SearchCases, NoLayoutOfTheUniformOnesIsBetter) {
  SearchRequest request = request_33b("h100-2x8");
  const SearchResult result = run(request);
  Layout layout;
  layout.schedule = result.best.layout.schedule;
  for (const size_t tp : {1, 2, 4, 8}) {
    for (size_t stages = 2; stages * tp <= 16; ++stages) {
      layout.stages.clear();
      for (size_t s = 0; s < stages; ++s) {
        const Range layers = {62 * s / stages, 62 * (s + 1) / stages};
        layout.stages.push_back({Role::both,
                                 layers,
                                 {layers.size(), s == 0, s + 1 == stages, tp, 1, 0, 1},
                                 s * tp / 8});
      }
      EXPECT_GE(run(request, layout).latency_ms, result.best.latency_ms) << layout_text(layout);
    }
  }
}

TEST(SearchCases, LeftoverGpusAreUsedAndNeverExceeded) {
  for (const size_t gpus : {1, 3, 7, 12, 13}) {
    SearchRequest request = request_33b("h100-2x8");
    request.cluster.nodes[0].gpu_memory_gib = 60;
    request.workload.max_gpus = gpus;
    const SearchResult result = run(request);
    EXPECT_EQ(result.found, gpus > 1);
    EXPECT_LE(result.best.gpus, gpus);
    for (const Candidate& other : result.ranked) EXPECT_LE(other.gpus, gpus);
  }
}

TEST(SearchCases, SaysByHowMuchLimitsAreMissed) {
  SearchRequest request = request_33b("h100-1x8");
  request.workload.slo_ttft_ms = 1;
  request.workload.slo_tpot_ms = 1;
  const SearchResult result = run(request);
  EXPECT_FALSE(result.found);
  ASSERT_FALSE(result.best.layout.stages.empty());
  EXPECT_SAYS(result.verdict, "no layout meets the limits; ");
  EXPECT_SAYS(result.verdict, " ms against a limit of 1.0 (");
  EXPECT_SAYS(error_of([&] { plan_of(request, result, Formats()); }), "comes closest");
  EXPECT_SAYS(refusal(result, "TP 8 x PP 1, 1 replica").remedy, "times as long");
}

TEST(SearchCases, SaysWhenNothingFits) {
  SearchRequest request = request_33b("h200-1x1");
  request.cluster.nodes[0].gpu_memory_gib = 40;
  const SearchResult result = run(request);
  EXPECT_FALSE(result.found);
  EXPECT_TRUE(result.best.layout.stages.empty());
  EXPECT_SAYS(result.verdict, "no layout fits this cluster's memory");
  EXPECT_SAYS(refusal(result, "TP 1 x PP 1").reason, "stage 0: short ");
  EXPECT_SAYS(refusal(result, "TP 1 x PP 1").remedy, "on 2 GPUs; there is 1");
}

TEST(SearchCases, PlansReadBackAndAreExecutable) {
  SearchRequest request = request_33b("h100-2x8");
  request.workload.objective = Objective::throughput;
  const SearchResult result = run(request);
  const Plan plan = plan_of(request, result, Formats());
  EXPECT_EQ(parse_plan_yaml(to_yaml(plan), "again"), plan);
  EXPECT_EQ(problems(plan, request.model), std::vector<std::string>());
  EXPECT_EQ(plan.replicas.front().count, result.best.layout.n_replicas);
  EXPECT_EQ(plan.predicted.speed->tokens_per_s, result.best.tokens_per_s);
  EXPECT_GE(plan.limits.kv_blocks * 64, plan.limits.max_sequences * 2304);
}

TEST(SearchCases, WhatTheRuntimeCannotDoIsMarkedInThePlan) {
  SearchRequest request = request_33b("h100-1x8");
  request.separate_groups = true;
  Layout layout;
  layout.stages = {{Role::prefill, {0, 62}, {62, true, true, 4, 1, 0, 1}, 0},
                   {Role::decode, {0, 62}, {62, true, true, 4, 1, 0, 1}, 0}};
  const Plan plan = plan_of(request, run(request, layout), Formats());
  EXPECT_EQ(plan.replicas[0].stages[1].slots.front(), (Slot{0, 4}));
  const std::vector<std::string> found = problems(plan, request.model);
  EXPECT_SAYS(fmt::format("{}", fmt::join(found, "\n")), "role prefill is not executed yet");
}

TEST(SearchCases, ExpertsAreSharedOutInModelsThatHaveThem) {
  SearchRequest request = request_33b("h100-1x8");
  request.model = model("mixtral-8x7b");
  const SearchResult result = run(request);  // these costs are the same for every share
  ASSERT_TRUE(result.found);
  std::set<std::string> texts;
  for (const Candidate& other : result.ranked) texts.insert(layout_text(other.layout));
  EXPECT_EQ(texts.size(), result.ranked.size());
  Layout layout = result.best.layout;
  layout.n_replicas = 1;
  layout.stages = {{Role::both, {0, 32}, {32, true, true, 8, 4, 0, 1}, 0}};
  EXPECT_EQ(layout_text(layout), "32x8 ep4");
  const Plan plan = plan_of(request, run(request, layout), Formats());
  EXPECT_EQ(plan.replicas[0].stages[0].ep, 4u);
  EXPECT_SAYS(fmt::format("{}", fmt::join(problems(plan, request.model), "\n")),
              "ep 4 is not executed yet");
}

TEST(SearchCases, LayoutsByHandAreChecked) {
  const SearchRequest request = request_33b("h100-1x8");
  Layout layout;
  layout.stages = {{Role::both, {0, 31}, {31, true, false, 4, 1, 0, 1}, 0},
                   {Role::both, {31, 62}, {31, false, true, 4, 1, 0, 1}, 0}};
  EXPECT_EQ(run(request, layout).gpus, 8u);
  const auto error_with = [&](auto&& change) {
    Layout bad = layout;
    change(bad);
    return error_of([&] { run(request, bad); });
  };
  EXPECT_SAYS(error_with([](Layout& l) { l.stages[1].shape.tp = 3; }), "does not divide 56 heads");
  EXPECT_SAYS(error_with([](Layout& l) { l.stages[1].shape.tp = 8; }),
              "stages 0 to 1 use 12 GPUs of one node of 8");
  EXPECT_SAYS(error_with([](Layout& l) { l.stages.pop_back(); }),
              "the stages have 31 layers, the model has 62");
  EXPECT_SAYS(error_with([](Layout& l) { l.n_replicas = 2; }), "no room for 2 replicas");
  EXPECT_SAYS(error_with([](Layout& l) { l.schedule.batch = 4096; }), "stage 0: short ");
  EXPECT_SAYS(error_with([](Layout& l) { l.schedule.batch = 0; }), "at least 1");
  EXPECT_SAYS(error_with([](Layout& l) { l.stages[0].shape.node_class = 9; }), "node class 9 of 1");
}

TEST(SearchCases, BadRequestsListEveryProblem) {
  SearchRequest request = request_33b("h100-1x8");
  request.cluster.nodes[0].gpu = "h300";
  request.workload.output_tokens = 0;
  request.max_stages = 0;
  request.context = 1'000'000;
  const std::string error = error_of([&] { run(request); });
  EXPECT_SAYS(error, "4 problems");
  EXPECT_SAYS(error, "unknown GPU \"h300\"; known: h100-sxm");
  EXPECT_SAYS(error, "output_tokens 0 is not from 1");
  EXPECT_SAYS(error, "max_stages 0 is not from 1 to 64");
  EXPECT_SAYS(error, "context 1000000 is beyond the model's 16384");
  request = request_33b("h100-1x8");
  request.model.n_layers = 2000;
  EXPECT_SAYS(error_of([&] { run(request); }), "n_layers 2000: models of at most 1024 layers");
}

TEST(SearchCases, AMillionGpusAreSearched) {
  SearchRequest request = request_33b("h100-1x8");
  request.cluster.nodes[0].count = 125'000;
  const SearchResult result = run(request);
  EXPECT_TRUE(result.found && result.proved);
  EXPECT_LE(result.best.layout.n_replicas, 32u);
}

// Seven kinds of node: the work is bounded, and the gap that is stated holds.
TEST(SearchCases, ManyKindsOfNodeGiveAGapThatHolds) {
  SearchRequest request = request_33b("h100-1x8");
  request.model = small_spec();
  request.model.n_heads = 4;
  request.model.n_kv_heads = 4;
  request.model.context = 8192;
  for (size_t c = 1; c < 7; ++c) {
    request.cluster.nodes.push_back(request.cluster.nodes[0]);
    request.cluster.nodes[c].name = fmt::format("class{}", c);
    request.cluster.nodes[c].gpus = 1 + c % 4;
  }
  request.workload = {100, 20, 3, Objective::latency, {}, {}, 6};
  request.max_stages = 3;
  RandomCostOptions options;
  options.spread = 40;
  const SimpleServing serving(100, 20);
  size_t n_bounded = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options.seed = seed;
    const RandomCosts costs(options);
    request.max_work = 0;
    const SearchResult whole = search(request, costs, serving);
    ASSERT_TRUE(whole.found && whole.proved);
    request.max_work = 1;
    const SearchResult part = search(request, costs, serving);
    ASSERT_TRUE(part.found);
    EXPECT_GE(whole.best.latency_ms, part.best.latency_ms * (1 - part.gap) * (1 - 1e-9));
    n_bounded += part.proved ? 0 : 1;
    request.max_work = 20;
    const SearchResult more = search(request, costs, serving);
    EXPECT_GE(whole.best.latency_ms, more.best.latency_ms * (1 - more.gap) * (1 - 1e-9));
  }
  EXPECT_GT(n_bounded, 5u);
}

}  // namespace
}  // namespace weft::planner
