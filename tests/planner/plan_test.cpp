// The plan: exact reading back, the hash, and every reason for refusing one.
#include "planner/plan.h"
#include "planner/memory_model.h"

#include <functional>
#include <random>

#include "planner/manual_plan.h"
#include "planner/memory_model.h"
#include "planner/plan_json.h"
#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

Plan small_plan(const std::string& layout = "4x2,2x2") {
  ManualOptions options;
  options.rank_memory_bytes = size_t{64} << 30;
  return manual_plan(small_spec(), parse_layout(layout), options);
}

class RandomPlans {
 public:
  explicit RandomPlans(uint64_t seed) : random_(seed) {}

  Plan next() {
    Plan plan;
    plan.model_name = text();
    for (int i = 0; i < 64; ++i) plan.facts_sha256 += "0123456789abcdef"[random_() % 16];
    plan.cluster = text();
    plan.formats = {dtype(), dtype(), dtype(), dtype()};
    plan.numerics = static_cast<Numerics>(random_() % 2);
    plan.limits = {count(1, 1 << 30),
                   count(1, 1'000'000),
                   count(1, 1 << 24),
                   count(1, 1 << 24),
                   count(1, 100'000),
                   count(1, 1 << 30),
                   {}};
    for (size_t n = random_() % 4; n > 0; --n) plan.limits.graph_buckets.push_back(count(1, 512));
    for (size_t n = random_() % 3; n > 0; --n) plan.replicas.push_back(replica());
    for (size_t n = random_() % 3; n > 0; --n)
      plan.predicted.rank_memory.push_back({bytes(), bytes(), bytes(), bytes()});
    if (random_() % 2 == 0) plan.predicted.speed = speed();
    return plan;
  }

 private:
  size_t count(size_t least, size_t most) { return least + random_() % (most - least + 1); }
  size_t bytes() { return random_() >> (4 + random_() % 60); }
  DType dtype() {
    constexpr DType dtypes[] = {DType::bf16, DType::f16, DType::f32};
    return dtypes[random_() % 3];
  }
  std::string text() {
    static constexpr const char* pieces[] = {
        "a",  "Z",    "7", ".",    "-", "_", "/", " ", ":", "#", "\"", "\\", "\n",   "\t",  "é",
        "漢", "🙂", "~", "null", "{", "]", ",", "*", "&", "!", "%",  "'",  "\x01", "\x7f"};
    std::string made;
    for (size_t n = random_() % 8; n > 0; --n) made += pieces[random_() % std::size(pieces)];
    return made;
  }
  double number() { return static_cast<double>(random_()) / static_cast<double>(random_() | 1); }
  Speed speed() {
    Speed made = {number(), number(), number(), {}};
    for (size_t n = random_() % 3; n > 0; --n) made.stages.push_back({number(), number()});
    return made;
  }
  Replica replica() {
    Replica made;
    made.count = count(1, 9);
    for (size_t n = random_() % 4; n > 0; --n) {
      Stage& stage = made.stages.emplace_back();
      stage.role = static_cast<Role>(random_() % 3);
      stage.layers.begin = random_() % 1000;
      stage.layers.end = stage.layers.begin + count(1, 99);
      stage.tp = count(1, 1'000'000);
      stage.dp = count(1, 4);
      stage.ep = count(1, 4);
      for (size_t k = random_() % 20; k > 0; --k)
        stage.slots.push_back({random_() % 1'000'001, random_() % 1'000'001});
    }
    return made;
  }

  std::mt19937_64 random_;
};

TEST(PlanYaml, RandomPlansReadBackExactly) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  RandomPlans plans(seed);
  for (int i = 0; i < 500; ++i) {
    const Plan plan = plans.next();
    const std::string yaml = to_yaml(plan);
    const Plan again = parse_plan_yaml(yaml, "again");
    ASSERT_EQ(again, plan) << yaml;
    ASSERT_EQ(to_yaml(again), yaml);
    ASSERT_EQ(plan_sha256(again), plan_sha256(plan));
  }
}

// Cutting, doubling and changing bytes of a good plan gives a plan or an Error, nothing else.
TEST(PlanYaml, MutatedPlansGiveAPlanOrAnError) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const std::string good = to_yaml(small_plan());
  size_t n_refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = good;
    for (size_t n = 1 + random() % 4; n > 0 && !text.empty(); --n) {
      const size_t at = random() % text.size();
      const size_t length = random() % std::min<size_t>(40, text.size() - at);
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), length));
          break;
        default:
          text[at] = "0123456789:{}[],\n -#&*!|>'\"%@`"[random() % 31];
      }
    }
    try {
      const Plan plan = parse_plan_yaml(text, "mutated");
      problems(plan, small_spec());
    } catch (const Error& error) {
      ++n_refused;
      ASSERT_NE(std::string(error.what()).find("mutated"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(n_refused, 100u);
}

TEST(PlanYaml, ExplainsItself) {
  const std::string yaml = to_yaml(small_plan());
  EXPECT_SAYS(yaml, "# Layout 4x2,2x2 (layers x tensor-parallel ranks): 4 ranks.");
  EXPECT_SAYS(yaml, "# Stage 1: 2 layers on 2 ranks");
  EXPECT_SAYS(yaml, "# a rank holds 0.");
  EXPECT_SAYS(yaml, "context: 1024  # tokens of one sequence");
}

TEST(PlanYaml, AFileOnAFewLinesIsEnough) {
  const std::string text = fmt::format(
      "version: 1\nmodel: {{name: small, facts_sha256: {}}}\ncluster: manual\n"
      "formats: {{weights: f32, activations: f32, kv_key: f32, kv_value: f16}}\nnumerics: fast\n"
      "limits: {{context: 64, max_sequences: 1, max_batch_tokens: 8, prefill_chunk: 8,\n"
      "  batches_in_flight: 1, kv_blocks: 1}}\nreplicas: [{{count: 1, stages: [{{role: both,\n"
      "  layers: [0, 6], tp: 1, dp: 1, ep: 1, slots: [{{node: 0, gpu: 0}}]}}]}}]\n",
      facts_sha256(small_spec()));
  const Plan plan = parse_plan_yaml(text, "short.yaml");
  EXPECT_EQ(layout_text(plan), "6x1");
  EXPECT_EQ(plan.formats.kv_value, DType::f16);
  EXPECT_EQ(plan.numerics, Numerics::fast);
  EXPECT_TRUE(problems(plan, small_spec()).empty());
}

class BadPlanYaml : public ::testing::Test {
 protected:
  std::string error_with(const std::string& from, const std::string& to) {
    std::string text = to_yaml(small_plan());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " is not in\n" << text;
    text.replace(at, from.size(), to);
    return error_of([&] { parse_plan_yaml(text, "p.yaml"); });
  }
};

TEST_F(BadPlanYaml, SaysWhatAndWhere) {
  EXPECT_EQ(error_with("numerics:", "numeric:"),
            "p.yaml:10:1: unknown key \"numeric\" (did you mean \"numerics\"?)");
  EXPECT_EQ(
      error_with("max_sequences", "max_seqences"),
      "p.yaml:13:3: unknown key \"max_seqences\" in limits (did you mean \"max_sequences\"?)");
  EXPECT_SAYS(error_with("        tp: 2", "        pt: 2"), "unknown key \"pt\" in stages[0]");
  EXPECT_EQ(error_with("tp: 2", "tp: two"),
            "p.yaml:26:13: tp: \"two\" is not a whole number from 1 to 1000000");
  EXPECT_SAYS(error_with("tp: 2", "tp: 0"), "tp: \"0\" is not a whole number from 1 to");
  EXPECT_SAYS(error_with("tp: 2", "tp: 1000001"), "tp: \"1000001\"");
  EXPECT_SAYS(error_with("tp: 2", "tp: 2\n        tp: 2"), "key \"tp\" is there twice");
  EXPECT_SAYS(error_with("[0, 4]", "[0, 4, 6]"), "layers: has 3 items; at most 2");
  EXPECT_SAYS(error_with("[0, 4]", "[4]"), "layers: must be [first, end)");
  EXPECT_SAYS(error_with("[0, 4]", "[4, 4]"), "layers: [4, 4) are no layers");
  EXPECT_SAYS(error_with("[0, 4]", "[0, 100001]"), "layers[1]: \"100001\"");
  EXPECT_SAYS(error_with("role: both", "role: encode"), "is none of both, prefill, decode");
  EXPECT_SAYS(error_with("kv_key: bf16", "kv_key: fp9"),
              "kv_key: \"fp9\" is none of bf16, f16, f32, fp8, int8, int4");
  EXPECT_SAYS(error_with("version: 1", "version: 2"), "version: 2 is not read; this weft reads 1");
  EXPECT_SAYS(error_with("version: 1\n", ""), "key \"version\" is missing");
  EXPECT_SAYS(error_with("facts_sha256: ", "facts_sha256: 0"), "64 lower-case hexadecimal digits");
  EXPECT_SAYS(error_with("cluster: manual", "cluster: [manual]"),
              "cluster: must be a single value, not a list");
  EXPECT_SAYS(error_with("context: 1024", "context: 1e3"),
              "context: \"1e3\" is not a whole number");
  EXPECT_SAYS(error_with("context: 1024", "context: &c 1024"), "anchors");
  EXPECT_SAYS(error_with("slots: [", "slots: [*a, "), "p.yaml:29:");
  EXPECT_SAYS(error_with("gpu: 1}", "gpu: 1"), "malformed YAML");
}

TEST_F(BadPlanYaml, SpeedIsThereAsAWholeOrNotAtAll) {
  EXPECT_SAYS(error_with("  rank_memory:", "  ttft_ms: 5\n  rank_memory:"),
              "key \"tpot_ms\" is missing");
  EXPECT_SAYS(error_with("  rank_memory:", "  ttft_ms: -5\n  rank_memory:"),
              "ttft_ms: -5 is negative");
  EXPECT_SAYS(error_with("  rank_memory:", "  stages: []\n  rank_memory:"),
              "key \"ttft_ms\" is missing");
}

TEST(PlanHash, IsOfEverythingButThePrediction) {
  const Plan plan = small_plan();
  Plan other = plan;
  other.predicted.rank_memory[0].kv += 1;
  other.predicted.speed = Speed{1, 2, 3, {}};
  EXPECT_EQ(plan_sha256(plan), plan_sha256(other));
  const std::function<void(Plan&)> changes[] = {
      [](Plan& p) { p.model_name = "x"; },
      [](Plan& p) { p.facts_sha256[0] = p.facts_sha256[0] == '0' ? '1' : '0'; },
      [](Plan& p) { p.cluster = "x"; },
      [](Plan& p) { p.formats.kv_value = DType::f16; },
      [](Plan& p) { p.numerics = Numerics::fast; },
      [](Plan& p) { p.limits.kv_blocks += 1; },
      [](Plan& p) { p.limits.graph_buckets = {1}; },
      [](Plan& p) { p.replicas[0].count = 2; },
      [](Plan& p) { p.replicas[0].stages[0].role = Role::prefill; },
      [](Plan& p) { p.replicas[0].stages[1].slots[1].gpu = 9; },
  };
  for (const auto& change : changes) {
    other = plan;
    change(other);
    EXPECT_NE(plan_sha256(plan), plan_sha256(other)) << to_json(other, WithPredicted::no);
  }
}

TEST(PlanJson, IsCanonical) {
  Plan plan = small_plan("6x1");
  plan.limits.graph_buckets = {1, 2};
  const std::string expected = fmt::format(
      "{{\"cluster\":\"manual\",\"formats\":{{\"activations\":\"bf16\",\"kv_key\":\"bf16\","
      "\"kv_value\":\"bf16\",\"weights\":\"bf16\"}},\"limits\":{{\"batches_in_flight\":1,"
      "\"context\":1024,\"graph_buckets\":[1,2],\"kv_blocks\":1024,\"max_batch_tokens\":2048,"
      "\"max_sequences\":64,\"prefill_chunk\":512}},\"model\":{{\"facts_sha256\":\"{}\","
      "\"name\":\"small\"}},\"numerics\":\"invariant\",\"replicas\":[{{\"count\":1,\"stages\":["
      "{{\"dp\":1,\"ep\":1,\"layers\":[0,6],\"role\":\"both\",\"slots\":[{{\"gpu\":0,\"node\":0}}],"
      "\"tp\":1}}]}}],\"version\":1}}",
      plan.facts_sha256);
  EXPECT_EQ(to_json(plan, WithPredicted::no), expected);
  EXPECT_SAYS(to_json(plan, WithPredicted::yes),
              "\"predicted\":{\"edge_token_bytes\":[],\"rank_memory\":[{\"activations\":");
}

std::string all_problems(const std::function<void(Plan&)>& change) {
  Plan plan = small_plan();
  change(plan);
  return fmt::format("{}", fmt::join(problems(plan, small_spec()), "\n"));
}

TEST(PlanProblems, NoneForAGoodPlan) {
  EXPECT_EQ(all_problems([](Plan&) {}), "");
  EXPECT_EQ(all_problems([](Plan& p) { p.predicted.rank_memory.clear(); }), "");
}

TEST(PlanProblems, LayersMissingDoubledOrReordered) {
  EXPECT_EQ(all_problems([](Plan& p) {
              p.replicas[0].stages[1].layers = {5, 6};
            }),
            "layers [4, 5) are in no stage (before stage 1)");
  EXPECT_EQ(all_problems([](Plan& p) {
              p.replicas[0].stages[1].layers = {3, 6};
            }),
            "layers [3, 4) of stage 1 are in an earlier stage too");
  EXPECT_EQ(all_problems([](Plan& p) {
              p.replicas[0].stages[0].layers = {1, 4};
            }),
            "layers [0, 1) are in no stage (before stage 0)");
  EXPECT_SAYS(all_problems([](Plan& p) {
                std::swap(p.replicas[0].stages[0].layers, p.replicas[0].stages[1].layers);
              }),
              "layers [0, 4) of stage 1 are in an earlier stage too");
  EXPECT_EQ(all_problems([](Plan& p) {
              p.replicas[0].stages[1].layers = {4, 4};
            }),
            "stage 1: layers [4, 4) are none\n"
            "layers [4, 6) are in no stage: the last ends at 4, the model has 6 layers");
}

TEST(PlanProblems, WhatTheRuntimeDoesNotExecuteYet) {
  EXPECT_EQ(all_problems([](Plan& p) { p.replicas[0].stages[0].role = Role::prefill; }),
            "stage 0: role prefill is not executed yet; use both");
  EXPECT_EQ(all_problems([](Plan& p) { p.replicas[0].stages[0].ep = 2; }),
            "stage 0: ep 2 is not executed yet; use 1");
  EXPECT_SAYS(all_problems([](Plan& p) { p.replicas[0].stages[0].dp = 2; }),
              "stage 0: dp 2 is not executed yet; use 1");
  EXPECT_SAYS(all_problems([](Plan& p) { p.replicas.push_back(p.replicas[0]); }),
              "2 kinds of replica: exactly one is executed");
  EXPECT_SAYS(all_problems([](Plan& p) { p.replicas.clear(); }), "0 kinds of replica");
}

TEST(PlanProblems, LimitsWidthsSlotsAndModel) {
  EXPECT_SAYS(all_problems([](Plan& p) { p.limits.kv_blocks = 15; }),
              "limits: kv_blocks 15 hold 960 tokens, less than one context of 1024");
  EXPECT_EQ(all_problems([](Plan& p) { p.limits.kv_blocks = 16; }), "");
  EXPECT_SAYS(all_problems([](Plan& p) { p.limits.max_sequences = 0; }),
              "limits: max_sequences 0 is not from 1 to 1000000");
  EXPECT_SAYS(all_problems([](Plan& p) { p.limits.prefill_chunk = 4096; }),
              "limits: prefill_chunk 4096 is above max_batch_tokens 2048");
  EXPECT_SAYS(all_problems([](Plan& p) { p.limits.context = 1025; }),
              "limits: context 1025 is beyond the model's 1024");
  EXPECT_SAYS(all_problems([](Plan& p) { p.limits.graph_buckets = {4, 2}; }), "do not ascend");
  EXPECT_SAYS(all_problems([](Plan& p) { p.formats.weights = DType::i32; }),
              "formats: weights i32 is not executed yet; use bf16, f16, f32");
  EXPECT_SAYS(all_problems([](Plan& p) { p.replicas[0].stages[0].tp = 3; }),
              "stage 0: TP 3: does not divide 8 heads; legal: 1 2 4 8");
  EXPECT_SAYS(all_problems([](Plan& p) {
                for (Stage& stage : p.replicas[0].stages) stage.tp = 3;
              }),
              "stage 0 and 1 more: TP 3");
  EXPECT_EQ(all_problems([](Plan& p) { p.replicas[0].stages[0].slots.pop_back(); }),
            "stage 0: 1 slots for tp 2 x dp 1");
  EXPECT_EQ(all_problems([](Plan& p) {
              p.replicas[0].stages[1].slots[0] = {0, 0};
            }),
            "stage 1: slot node 0 gpu 0 is taken twice");
  EXPECT_SAYS(all_problems([](Plan& p) { p.predicted.rank_memory.pop_back(); }),
              "predicted: rank_memory has 1 entries for 2 stages");
  EXPECT_SAYS(all_problems([](Plan& p) {
                p.predicted.speed = Speed{1, 2, 3, {{4, 5}}};
              }),
              "predicted: stages has 1 entries for 2 stages");
}

TEST(PlanProblems, NarrowFormatsAreReadAndNotExecuted) {
  Plan plan = small_plan();
  plan.formats = {DType::int4, DType::bf16, DType::int8, DType::fp8};
  EXPECT_EQ(parse_plan_yaml(to_yaml(plan), "plan").formats, plan.formats);
  const std::vector<std::string> found = problems(plan, small_spec());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_SAYS(found[0], "formats: weights int4 is not executed yet; use bf16, f16, f32");
  EXPECT_SAYS(found[1], "formats: kv_key int8 is not executed yet");
  EXPECT_SAYS(found[2], "formats: kv_value fp8 is not executed yet");
  EXPECT_TRUE(memory_problems(small_spec(), plan, 1).empty()) << "sizes that nobody knows";
}

TEST(PlanProblems, AGroupThatDecodesHasAllLayersAgain) {
  Plan plan = small_plan();
  std::vector<Stage>& stages = plan.replicas.front().stages;
  const size_t n = stages.size();
  for (size_t s = 0; s < n; ++s) {
    stages[s].role = Role::prefill;
    Stage decoding = stages[s];
    decoding.role = Role::decode;
    for (Slot& slot : decoding.slots) slot.node += 1;
    stages.push_back(decoding);
  }
  plan.predicted = {};
  const std::vector<std::string> found = problems(plan, small_spec());
  EXPECT_EQ(found.size(), 2 * n) << found.front();
  for (const std::string& problem : found) EXPECT_SAYS(problem, "is not executed yet; use both");
}

TEST(PlanProblems, ABatchIsOneMessage) {
  ModelSpec spec = small_spec();
  spec.context = size_t{1} << 30;
  Plan plan = small_plan();
  plan.facts_sha256 = facts_sha256(spec);
  plan.limits = {size_t{1} << 30, 1'000'000, size_t{1} << 24, 512, 1, size_t{1} << 30, {}};
  const auto text_of = [&] { return fmt::format("{}", fmt::join(problems(plan, spec), "\n")); };
  EXPECT_SAYS(text_of(),
              "limits: kv_blocks 1073741824 make a batch of up to 4410076192 bytes, and a message "
              "has at most 2147483647: use at most 508093687 blocks, or fewer max_sequences "
              "(1000000) or less context (1073741824)");
  plan.limits.kv_blocks = 508'093'687;
  EXPECT_EQ(text_of(), "");
  plan.limits.kv_blocks += 1;
  EXPECT_NE(text_of(), "");
  // Far more blocks than the sequences can be given: no message has them all.
  plan.limits.kv_blocks = size_t{1} << 30;
  plan.limits.context = plan.limits.max_sequences = 1024;
  EXPECT_EQ(text_of(), "");
  plan.limits.max_sequences = 2'000'000;  // beyond its range: that alone is said
  EXPECT_EQ(problems(plan, spec).size(), 1u);
}

TEST(PlanProblems, AnotherModelsPlan) {
  const std::vector<std::string> found = problems(small_plan("6x1"), model("deepseek-coder-1.3b"));
  EXPECT_SAYS(found.at(0), "the plan is for model small (facts ");
  EXPECT_SAYS(found.at(0), "this model is deepseek-coder-1.3b (facts ");
}

}  // namespace
}  // namespace weft::planner
