// A plan that was searched for runs, and its prediction stands beside the measurement.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/plan.h"
#include "runtime/base/file.h"
#include "tests/support/command.h"

namespace weft {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::run_weft;

const std::string kModel = std::string(WEFT_SOURCE_DIR) + "/configs/models/demo";

CommandResult search(const std::string& plan, std::vector<std::string> more) {
  std::vector<std::string> words = {"plan",
                                    "--model",
                                    kModel,
                                    "--cluster",
                                    "cpu-local",
                                    "--configs",
                                    std::string(WEFT_SOURCE_DIR) + "/configs",
                                    "--prompt-tokens",
                                    "64",
                                    "--output-tokens",
                                    "16",
                                    "--concurrency",
                                    "4",
                                    "-o",
                                    plan};
  words.insert(words.end(), more.begin(), more.end());
  return run_weft(1, words);
}

std::vector<std::string> run_words(const std::string& plan) {
  return {"run",      "--model",           kModel,         "--plan", plan,
          "--prompt", "def fibonacci(n):", "--max-tokens", "12",     "--ignore-eos",
          "--json"};
}

// The same tokens as without a plan, on whatever the search chose.
TEST(PlannedRun, ASearchedPlanRunsAndReportsItsPrediction) {
  const test::TemporaryFolder folder;
  const CommandResult planned = search(folder / "plan.yaml", {});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const planner::Plan plan = planner::read_plan_yaml(folder / "plan.yaml");
  const auto n_ranks = static_cast<int>(world_size(plan));
  const CommandResult ran = run_weft(n_ranks, run_words(folder / "plan.yaml"));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json line = json::parse(ran.out);
  EXPECT_EQ(line["layout"], layout_text(plan));
  EXPECT_EQ(line["predicted"]["ttft_ms"], plan.predicted.speed->ttft_ms);
  ASSERT_EQ(line["stages"].size(), plan.replicas.front().stages.size());
  for (const json& stage : line["stages"]) {
    EXPECT_GT(stage["prefill_ms"].get<double>(), 0);
    EXPECT_GT(stage["decode_ms"].get<double>(), 0);
    EXPECT_GT(stage["predicted"]["prefill_ms"].get<double>(), 0);
    EXPECT_GT(stage["predicted"]["decode_ms"].get<double>(), 0);
  }
  const CommandResult alone =
      run_weft(1, {"run", "--model", kModel, "--prompt", "def fibonacci(n):", "--max-tokens", "12",
                   "--ignore-eos", "--json"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_EQ(json::parse(alone.out)["token_ids"], line["token_ids"]);
  EXPECT_TRUE(json::parse(alone.out)["predicted"].is_null());
}

TEST(PlannedRun, AGivenLayoutOfTwoStagesRuns) {
  const test::TemporaryFolder folder;
  const CommandResult planned = search(folder / "plan.yaml", {"--layout", "3x2,3x1"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const CommandResult ran = run_weft(3, run_words(folder / "plan.yaml"));
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["stages"][1]["tp"], 1);
  EXPECT_NE(ran.err.find("predicted)"), std::string::npos) << ran.err;
}

// What is planned for but not executed yet is refused by name.
TEST(PlannedRun, WhatIsNotExecutedYetIsRefusedByName) {
  const test::TemporaryFolder folder;
  ASSERT_EQ(search(folder / "plan.yaml", {"--layout", "6x1"}).status, 0);
  std::string yaml = read_text(folder / "plan.yaml", 1 << 20);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = yaml;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    write_file(folder / "changed.yaml", changed);
    const CommandResult ran = run_weft(1, run_words(folder / "changed.yaml"));
    EXPECT_EQ(ran.status, 2);
    EXPECT_EQ(ran.out, "");
    return ran.err;
  };
  EXPECT_NE(with("weights: bf16", "weights: int4").find("weights int4 is not executed yet"),
            std::string::npos);
  EXPECT_NE(with("ep: 1", "ep: 2").find("ep 2 is not executed yet"), std::string::npos);
  EXPECT_NE(with("role: both", "role: decode").find("role decode is not executed yet"),
            std::string::npos);
}

TEST(PlannedRun, APlanForAnotherModelIsRefused) {
  const test::TemporaryFolder folder;
  const CommandResult planned =
      run_weft(1, {"plan", "--model",
                   std::string(WEFT_SOURCE_DIR) + "/configs/models/deepseek-coder-1.3b.yaml",
                   "--cluster", "h100-1x8", "--configs", std::string(WEFT_SOURCE_DIR) + "/configs",
                   "--layout", "24x1", "-o", folder / "other.yaml"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  const CommandResult ran = run_weft(1, run_words(folder / "other.yaml"));
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("the plan is for model deepseek-coder-1.3b"), std::string::npos)
      << ran.err;
}

}  // namespace
}  // namespace weft
