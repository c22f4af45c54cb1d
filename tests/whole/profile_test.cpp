// `weft profile` on CPU ranks: every part of a step on every rank, in a table, JSON, a trace and a
// picture.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/file.h"
#include "tests/support/command.h"

namespace weft {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::run_weft;

const std::string kRoot = WEFT_SOURCE_DIR;
const std::string kModel = kRoot + "/configs/models/demo";  // six layers
constexpr size_t kMostBytes = 64 << 20;

CommandResult profile(int n_ranks, std::vector<std::string> more) {
  std::vector<std::string> words = {
      "profile",   "--model", kModel,      "--configs", kRoot + "/configs", "--steps", "3",
      "--context", "130",     "--prefill", "33"};
  words.insert(words.end(), more.begin(), more.end());
  return run_weft(n_ranks, words);
}

std::set<std::string> names(const json& parts) {
  std::set<std::string> all;
  for (const auto& [name, ms] : parts.items()) {
    EXPECT_GT(ms.get<double>(), 0) << name;
    all.insert(name);
  }
  return all;
}

double sum(const json& parts) {
  double ms = 0;
  for (const auto& [name, one] : parts.items()) ms += one.get<double>();
  return ms;
}

TEST(Profile, OneRankHasEveryPartOfBothSteps) {
  const CommandResult result = profile(1, {"--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_EQ(out["layout"], "6x1");
  ASSERT_EQ(out["cases"].size(), 2u);
  EXPECT_EQ(out["cases"][0]["work"], "prefill");
  EXPECT_EQ(out["cases"][0]["tokens"], 33);
  EXPECT_EQ(out["cases"][1]["work"], "decode");
  EXPECT_EQ(out["cases"][1]["context"], 130);
  EXPECT_EQ(out["cases"][1]["steps"], 3);
  for (const json& one : out["cases"]) {
    const json& rank = one["ranks"].at(0);
    EXPECT_EQ(names(rank["parts"]),
              (std::set<std::string>{"embedding", "norm", "qkv", "attention", "o", "ffn", "head",
                                     "sampling", "host"}));
    EXPECT_NEAR(sum(rank["parts"]), rank["ms"].get<double>(), 1e-9);
    EXPECT_LE(rank["ms"].get<double>(), one["step_ms"].get<double>()) << "a part of the whole step";
    ASSERT_EQ(rank["layers"].size(), 6u);
    double in_layers = 0;
    for (const json& layer : rank["layers"]) {
      EXPECT_EQ(names(layer["parts"]),
                (std::set<std::string>{"norm", "qkv", "attention", "o", "ffn"}));
      in_layers += layer["ms"].get<double>();
    }
    const json& parts = rank["parts"];
    double outside = 0;
    for (const char* name : {"embedding", "head", "sampling", "host"})
      outside += parts[name].get<double>();
    EXPECT_NEAR(in_layers + outside, rank["ms"].get<double>(), 1e-9);
    EXPECT_GT(one["predicted"]["products"]["ms"].get<double>(), 0);
  }
}

// Stages of different widths: who sends, who receives, who sums, who samples.
TEST(Profile, EveryRankOfALayoutSaysWhatItDid) {
  const CommandResult result = profile(3, {"--json", "--layout", "4x2,2x1", "--batch", "2"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json out = json::parse(result.out);
  for (const json& one : out["cases"]) {
    ASSERT_EQ(one["ranks"].size(), 3u);
    for (size_t rank = 0; rank < 2; ++rank) {
      const json& first = one["ranks"][rank];
      EXPECT_EQ(first["stage"], 0);
      EXPECT_EQ(first["tp_rank"], rank);
      EXPECT_EQ(first["layers"].size(), 4u);
      EXPECT_TRUE(first["parts"].contains("all-reduce"));
      EXPECT_TRUE(first["parts"].contains("send"));
      EXPECT_FALSE(first["parts"].contains("head"));
    }
    const json& last = one["ranks"][2];
    EXPECT_EQ(last["stage"], 1);
    EXPECT_EQ(last["layers"][0]["layer"], 4);
    EXPECT_TRUE(last["parts"].contains("receive"));
    EXPECT_TRUE(last["parts"].contains("sampling"));
    EXPECT_FALSE(last["parts"].contains("all-reduce"));
    EXPECT_FALSE(last["parts"].contains("embedding"));
  }
}

TEST(Profile, ThePlansTableStandsBesideTheMeasurement) {
  const CommandResult result = profile(2, {"--tp", "2"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part : {"layout 6x2", "by the host's clock", "prefill 33, batch 1",
                           "decode batch 1, context 130", "all-reduce", "by the plan", "layer"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

TEST(Profile, TraceAndPictureHoldTheSteps) {
  const test::TemporaryFolder folder;
  const CommandResult result =
      profile(2, {"--pp", "2", "--trace", folder / "trace.json", "--svg", folder / "bars.svg"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json trace = json::parse(read_text(folder / "trace.json", kMostBytes));
  std::set<int> ranks;
  size_t n_attentions = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ranks.insert(event["pid"].get<int>());
    EXPECT_GE(event["dur"].get<double>(), 0);
    n_attentions += event["name"] == "attention" && event["cat"] == "decode";
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  EXPECT_EQ(n_attentions, 6u * 3) << "one a layer and step";
  const std::string svg = read_text(folder / "bars.svg", kMostBytes);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_NE(svg.find("<title>attention"), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Profile, APlansLimitsHoldTheCases) {
  const test::TemporaryFolder folder;
  const CommandResult planned =
      run_weft(1, {"plan", "--model", kModel, "--layout", "3x1,3x1", "--context", "256",
                   "--max-sequences", "2", "--max-batch-tokens", "64", "--prefill-chunk", "64",
                   "--kv-blocks", "8", "-o", folder / "plan.yaml"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const auto with_plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "profile",   "--model",          kModel,    "--plan", folder / "plan.yaml",
        "--configs", kRoot + "/configs", "--steps", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return run_weft(2, words);
  };
  const CommandResult ran = with_plan({"--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json out = json::parse(ran.out);
  EXPECT_EQ(out["layout"], "3x1,3x1");
  EXPECT_EQ(out["cases"][0]["tokens"], 64) << "as many as a batch of the plan holds";
  EXPECT_EQ(out["cases"][1]["context"], 256);
  const CommandResult refused = with_plan({"--prefill", "65", "--batch", "3"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");
  for (const char* part : {"--prefill 65 is above the plan's max_batch_tokens 64",
                           "--batch 3 is above the plan's max_sequences 2",
                           "batch 3 at context 256 takes 12 KV blocks, of which the plan has 8"})
    EXPECT_NE(refused.err.find(part), std::string::npos) << part << "\n" << refused.err;
}

TEST(Profile, BadInputIsRefused) {
  const auto refused = [](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), "profile");
    const CommandResult result = run_weft(1, words);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  refused({}, "--model");
  refused({"--model", kModel, "--trase", "x"}, "--trace");
  refused({"--model", kModel, "--batch", "0"}, "--batch 0");
  refused({"--model", kModel, "--tp", "2"}, "mpirun -n 2");
  refused({"--model", kModel, "--context", "8"}, "a context of 8 holds fewer than the 12 steps");
  refused({"--model", kModel, "--svg", "/no/such/folder/x.svg"}, "/no/such/folder");
  refused({"--model", kModel, "--backend", "cuda"}, "--backend cuda");
}

}  // namespace
}  // namespace weft
