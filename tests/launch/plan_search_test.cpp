// `weft plan --cluster`: what it finds, says and writes, and what it refuses.
#include <nlohmann/json.hpp>

#include "planner/plan.h"
#include "tests/launch/plan_fixture.h"

namespace weft::launch {
namespace {

using nlohmann::json;

class PlanSearchTest : public PlanCommandTest {
 protected:
  static std::string config(const std::string& name) {
    return std::string(WEFT_SOURCE_DIR) + "/configs/" + name;
  }
  static std::string cluster(const std::string& name) {
    return config("clusters/" + name + ".yaml");
  }
  // `weft plan` with shipped profiles, for the 33B model on two nodes of H100.
  static Outcome plan_33b(std::vector<std::string> more) {
    std::vector<std::string> words = base();
    words.insert(words.end(), more.begin(), more.end());
    return plan(words);
  }
  static std::vector<std::string> base() {
    return {"--model", model("deepseek-coder-33b"), "--cluster", cluster("h100-2x8"), "--configs",
            config("")};
  }
  void refused_33b(std::vector<std::string> more, const std::string& part) {
    std::vector<std::string> words = base();
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--html", file("report.html")});
    expect_refused(words, part);
  }
  static json json_of(const Outcome& outcome) {
    EXPECT_EQ(outcome.error, "");
    return json::parse(outcome.out);
  }
  void write(const std::string& name, const std::string& text) { write_file(file(name), text); }
};

void expect_has(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

TEST_F(PlanSearchTest, WritesAnExecutablePlanAndShowsTheRanking) {
  const Outcome outcome = plan_33b({"-o", file("plan.yaml")});
  EXPECT_EQ(outcome.error, "");
  const planner::Plan written = planner::read_plan_yaml(file("plan.yaml"));
  const planner::ModelSpec spec = planner::read_model_yaml(model("deepseek-coder-33b"));
  EXPECT_TRUE(problems(written, spec).empty()) << problems(written, spec).front();
  EXPECT_EQ(written.cluster, "h100-2x8");
  ASSERT_TRUE(written.predicted.speed);
  EXPECT_GT(written.predicted.speed->tokens_per_s, 0);
  EXPECT_EQ(written.predicted.speed->stages.size(), written.replicas.front().stages.size());
  EXPECT_GE(written.limits.context, 2048u + 256u);
  expect_has(outcome.out, {"TTFT ms", "TPOT ms", "tokens/s", "GiB of a rank", "between nodes",
                           "verdict", "best", "searched: TP 1 2 4 8", "prefill chunk", "beats"});
}

TEST_F(PlanSearchTest, JsonHoldsWhatTheTableShows) {
  const json found = json_of(plan_33b({"--json", "--top", "4"}));
  for (const char* key : {"plan", "predicted", "ranked", "refused", "search_ms", "front", "grid"})
    EXPECT_TRUE(found.contains(key)) << key;
  EXPECT_EQ(found["ranked"].size(), 4u);
  const json& predicted = found["predicted"];
  EXPECT_EQ(predicted["ttft_ms"], found["ranked"][0]["ttft_ms"]);
  EXPECT_EQ(predicted["ttft_ms"], found["plan"]["predicted"]["ttft_ms"]);
  EXPECT_LT(found["search_ms"].get<double>(), 5000);
  for (const json& stage : predicted["memory"]) {
    const size_t sum = stage["weights"].get<size_t>() + stage["kv"].get<size_t>() +
                       stage["activations"].get<size_t>() + stage["graphs"].get<size_t>() +
                       stage["buffers"].get<size_t>() + stage["reserve"].get<size_t>();
    EXPECT_EQ(stage["total"].get<size_t>(), sum);
    EXPECT_LE(sum, stage["limit"].get<size_t>());
  }
  double latency = 0;
  for (const json& layout : found["ranked"]) {
    EXPECT_GE(layout["latency_ms"].get<double>(), latency);
    latency = layout["latency_ms"].get<double>();
  }
}

// Every part of a step is in the breakdown: parts add up to what the stages take.
TEST_F(PlanSearchTest, TimesOfPartsAddUpToTheStages) {
  const json found = json_of(plan_33b({"--json", "--layout", "16x4,16x4,15x4,15x4"}));
  const json& time = found["predicted"]["time"];
  for (const char* phase : {"prefill_ms", "decode_ms"}) {
    double parts = 0, stages = 0;
    for (const auto& [name, ms] : time[phase].items()) parts += ms.get<double>();
    for (const json& stage : time["stages"]) stages += stage[phase].get<double>();
    EXPECT_NEAR(parts, stages, 1e-6 * stages) << phase;
    EXPECT_GT(time[phase]["edges"].get<double>(), 0);
    EXPECT_GT(time[phase]["all-reduce"].get<double>(), 0);
  }
}

TEST_F(PlanSearchTest, AGivenLayoutIsPredictedAndWrittenAsItIs) {
  const Outcome outcome = plan_33b({"--layout", "31x8,31x8", "--prefill-chunk", "1024",
                                    "--batches-in-flight", "3", "-o", file("plan.yaml")});
  EXPECT_EQ(outcome.error, "");
  const planner::Plan written = planner::read_plan_yaml(file("plan.yaml"));
  EXPECT_EQ(planner::layout_text(written), "31x8,31x8");
  EXPECT_EQ(written.limits.prefill_chunk, 1024u);
  EXPECT_EQ(written.limits.batches_in_flight, 3u);
  const std::vector<planner::Stage>& stages = written.replicas.front().stages;
  EXPECT_EQ(stages[0].slots[7], (planner::Slot{0, 7}));
  EXPECT_EQ(stages[1].slots[0], (planner::Slot{1, 0}));
  expect_has(outcome.out, {"31x8,31x8 was given"});
}

// What the search found is what the layout by hand is predicted to do, with the same schedule.
TEST_F(PlanSearchTest, TheSearchIsNoWorseThanAnyGivenLayout) {
  const json best = json_of(plan_33b({"--json"}));
  for (const char* layout : {"62x8", "31x8,31x8", "16x4,16x4,15x4,15x4", "2*62x8"}) {
    const json given = json_of(plan_33b({"--json", "--layout", layout}));
    EXPECT_LE(best["ranked"][0]["latency_ms"].get<double>(),
              given["ranked"][0]["latency_ms"].get<double>() * (1 + 1e-9))
        << layout;
  }
}

TEST_F(PlanSearchTest, ExplainsRefusalsRemediesAndTheWinner) {
  const Outcome outcome = plan_33b({"--explain", "-o", file("plan.yaml")});
  EXPECT_EQ(outcome.error, "");
  expect_has(outcome.out,
             {"refused", "TP 16: does not divide 56 heads; legal: 1 2 4 8 56", "beats ",
              "where it goes", "a decode step", "products ", "T = ", "min(B, C/L), error "});
  const Outcome large = plan({"--model", model("llama-3.1-70b"), "--cluster", cluster("h100-2x8"),
                              "--configs", config(""), "--explain", "-o", file("plan.yaml")});
  EXPECT_EQ(large.error, "");
  expect_has(large.out, {"TP 1 x PP 1: stage 0: short ", "weights 131.4 + ", "KV ",
                         "would do: TP 1 x PP 2", "TP 16: a node has at most 8 GPUs"});
}

TEST_F(PlanSearchTest, ComparesLayoutsSideBySide) {
  const std::vector<std::string> two = {"--compare", "31x8,31x8", "--compare",
                                        "16x4,16x4,15x4,15x4"};
  const Outcome outcome = plan_33b(two);
  EXPECT_EQ(outcome.error, "");
  expect_has(outcome.out, {"31x8,31x8", "16x4,16x4,15x4,15x4", "all-reduce ms", "edges ms",
                           "weights GiB", "between nodes a request", "decode step, slowest stage"});
  std::vector<std::string> as_json = two;
  as_json.push_back("--json");
  const json compared = json_of(plan_33b(as_json))["compared"];
  ASSERT_EQ(compared.size(), 2u);
  // Four stages of half the width read as much a stage, one after another.
  EXPECT_LT(compared[0]["latency_ms"].get<double>(), compared[1]["latency_ms"].get<double>());
  refused_33b({"--compare", "31x8,31x8"}, "excludes");
  EXPECT_NE(plan_33b({"--compare", "31x8,31x8"}).error.find("give it twice"), std::string::npos);
}

TEST_F(PlanSearchTest, WorkloadsComeFromAFileAndFlagsCountOverIt) {
  write("w.yaml",
        "version: 1\nprompt_tokens: 512\noutput_tokens: 64\nconcurrency: 8\n"
        "objective: gpus\nslo_ttft_ms: 2000\nslo_tpot_ms: 60\n");
  const json found = json_of(plan_33b({"--json", "--workload", file("w.yaml")}));
  EXPECT_LE(found["ranked"][0]["ttft_ms"].get<double>(), 2000);
  EXPECT_LE(found["ranked"][0]["tpot_ms"].get<double>(), 60);
  const json latency =
      json_of(plan_33b({"--json", "--workload", file("w.yaml"), "--objective", "latency"}));
  EXPECT_GT(latency["ranked"][0]["gpus"], found["ranked"][0]["gpus"]);
  const json few = json_of(plan_33b(
      {"--json", "--workload", file("w.yaml"), "--objective", "latency", "--max-gpus", "2"}));
  EXPECT_LE(few["ranked"][0]["gpus"], 2);
}

TEST_F(PlanSearchTest, NarrowWeightsAreMarkedInThePlan) {
  const Outcome outcome =
      plan_33b({"--weights", "fp8", "--kv-key", "int8", "--kv-value", "fp8", "-o", file("p.yaml")});
  EXPECT_EQ(outcome.error, "");
  const planner::Plan written = planner::read_plan_yaml(file("p.yaml"));
  EXPECT_EQ(written.formats.weights, DType::fp8);
  EXPECT_EQ(written.formats.kv_key, DType::int8);
  const std::string yaml = read_text(file("p.yaml"), 1 << 20);
  expect_has(yaml, {"# Not executed yet: formats: weights fp8 is not executed yet; use bf16"});
  expect_has(outcome.out, {"not executed yet: formats: kv_key int8"});
}

TEST_F(PlanSearchTest, MixturesOfExpertsArePlannedAndMarked) {
  const Outcome outcome = plan({"--model", model("mixtral-8x7b"), "--cluster", cluster("h100-1x8"),
                                "--configs", config(""), "-o", file("plan.yaml")});
  EXPECT_EQ(outcome.error, "");
  expect_has(outcome.out, {"not executed yet: model mixtral-8x7b", "mixtures of experts"});
}

TEST_F(PlanSearchTest, OtherEnginesArePredictedOnly) {
  for (const char* engine : {"vllm", "trtllm", "sglang"}) {
    const Outcome outcome = plan_33b({"--engine", engine, "-o", file("plan.yaml")});
    EXPECT_EQ(outcome.error, "");
    expect_has(outcome.out, {"not executed yet: it is predicted for "});
  }
}

TEST_F(PlanSearchTest, APlanEditedByHandIsCheckedAgain) {
  ASSERT_EQ(plan_33b({"--layout", "62x8", "-o", file("plan.yaml")}).error, "");
  std::string yaml = read_text(file("plan.yaml"), 1 << 20);
  const size_t at = yaml.find("layers: [0, 62]");
  ASSERT_NE(at, std::string::npos);
  yaml.replace(at, 15, "layers: [0, 61]");
  const planner::Plan edited = planner::parse_plan_yaml(yaml, "edited");
  const auto found = problems(edited, planner::read_model_yaml(model("deepseek-coder-33b")));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found.front().find("layers [61, 62) are in no stage"), std::string::npos);
}

TEST_F(PlanSearchTest, RefusesSizesThatAreNone) {
  refused_33b({"--prompt-tokens", "0"}, "--prompt-tokens 0: must be at least 1");
  refused_33b({"--output-tokens", "-3"}, "\"-3\" is not a whole number");
  refused_33b({"--concurrency", "0"}, "--concurrency 0: must be at least 1");
  refused_33b({"--concurrency", "10000000"}, "is not a whole number from 0 to 1000000");
  refused_33b({"--slo-ttft-ms", "-1"}, "--slo-ttft-ms -1 is no time above 0");
  refused_33b({"--slo-tpot-ms", "nan"}, "is no time above 0");
  refused_33b({"--max-gpus", "0"}, "--max-gpus 0: must be at least 1");
  refused_33b({"--top", "0"}, "--top 0: must be at least 1");
  refused_33b({"--prompt-tokens", "16384"}, "more than the context");
  refused_33b({"--context", "20000"}, "context 20000 is beyond the model's 16384");
  refused_33b({"--objective", "speed"}, "is none of latency, throughput, gpus");
  refused_33b({"--objective", "gpus"}, "needs a limit to meet");
  refused_33b({"--weights", "fp7"}, "(did you mean \"fp8\"?)");
  refused_33b({"--kv-value", "int8"}, "is none of bf16, fp8");
  refused_33b({"--engine", "vlm"}, "(did you mean \"vllm\"?)");
}

TEST_F(PlanSearchTest, RefusesFlagsThatMeanNothingHere) {
  refused_33b({"--gpu-memory-gib", "80"}, "the cluster's file says it");
  refused_33b({"--prefill-chunk", "512"}, "the search chooses it");
  refused_33b({"--kv-blocks", "512"}, "it follows from the memory");
  expect_refused(
      {"--model", model("deepseek-coder-33b"), "--layout", "62x8", "--objective", "latency"},
      "--objective requires --cluster");
}

TEST_F(PlanSearchTest, RefusesLayoutsThatTheClusterCannotHold) {
  refused_33b({"--layout", "62x16"}, "TP 16");
  refused_33b({"--layout", "61x8"}, "the stages have 61 layers, the model has 62");
  refused_33b({"--layout", "3*62x8"}, "no room for 3 replicas");
  refused_33b({"--layout", "0*62x8"}, "at least 1");
  expect_refused({"--model", model("llama-3.1-70b"), "--cluster", cluster("h100-2x8"), "--configs",
                  config(""), "--layout", "80x1"},
                 "layout 80x1: stage 0: short ");
  refused_33b({"--layout", "62x8|62x8|62x8"}, "one group, or one that prefills");
}

TEST_F(PlanSearchTest, SaysByHowMuchLimitsAreMissedAndWhatWouldDo) {
  refused_33b({"--slo-tpot-ms", "1"}, "ms against a limit of 1.0 (");
  refused_33b({"--slo-ttft-ms", "800", "--max-gpus", "1"}, "without --max-gpus");
  // 141 GB of weights on a GPU of 140 GiB.
  const std::vector<std::string> small = {
      "--model", model("llama-3.1-70b"), "--cluster", cluster("h200-1x1"), "--configs", config("")};
  expect_refused(small, "TP 1 x PP 1: stage 0: short ");
  expect_refused(small, "with 2 times the nodes: 40x1,40x1 on 2 GPUs");
}

TEST_F(PlanSearchTest, RefusesUnknownGpusAndBadFiles) {
  write("bad.yaml", "version: 1\nname: x\nnodes: [\n");
  write("gpu.yaml",
        "version: 1\nname: x\nnodes:\n  - {name: n, count: 1, gpus: 8, gpu: h1000-sxm, "
        "gpu_memory_gib: 80, nvlink_gbps: 450, pcie_gbps: 64, nic_count: 1, nic_gbps: "
        "50, nic_latency_us: 5}\n");
  write("huge.yaml",
        "version: 1\nname: x\nnodes:\n  - {name: n, count: 1000000, gpus: 8, gpu: "
        "h100-sxm, gpu_memory_gib: 80, nvlink_gbps: 450, pcie_gbps: 64, nic_count: 8, "
        "nic_gbps: 50, nic_latency_us: 5}\n");
  write("w.yaml", "version: 1\nprompt_tokens: 512\noutput_tokens: x\n");
  const std::string coder = model("deepseek-coder-33b");
  const auto on = [&](const std::string& path, const std::string& part) {
    expect_refused({"--model", coder, "--cluster", path, "--configs", config("")}, part);
  };
  on(file("bad.yaml"), "bad.yaml:");
  on(file("gpu.yaml"), "h1000-sxm");
  on(file("huge.yaml"), "8000000");
  on(file("none.yaml"), "none.yaml");
  on("h100-2x9", "(did you mean \"h100-2x8\"?)");
  refused_33b({"--workload", file("w.yaml")}, "w.yaml:3:16");
  refused_33b({"--machine-profile", config("profiles/cpu.yaml")}, "has none of it");
}

TEST_F(PlanSearchTest, RefusesModelsBeyondTheSearch) {
  std::string facts = read_text(model("deepseek-coder-33b"), 1 << 20);
  const size_t at = facts.find("n_layers: 62");
  ASSERT_NE(at, std::string::npos);
  facts.replace(at, 12, "n_layers: 100000");
  write("deep.yaml", facts);
  expect_refused(
      {"--model", file("deep.yaml"), "--cluster", cluster("h100-2x8"), "--configs", config("")},
      "n_layers 100000");
}

// The largest cluster that a file may have, in the time of a coffee at most.
TEST_F(PlanSearchTest, AMillionGpusAreSearched) {
  write("million.yaml",
        "version: 1\nname: x\nnodes:\n  - {name: n, count: 125000, gpus: 8, gpu: "
        "h100-sxm, gpu_memory_gib: 80, nvlink_gbps: 450, pcie_gbps: 64, nic_count: "
        "8, nic_gbps: 50, nic_latency_us: 5}\n");
  const json found = json_of(plan({"--model", model("deepseek-coder-33b"), "--cluster",
                                   file("million.yaml"), "--configs", config(""), "--json"}));
  EXPECT_TRUE(found["plan"].is_object());
}

}  // namespace
}  // namespace weft::launch
