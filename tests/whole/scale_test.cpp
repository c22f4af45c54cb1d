// `weft bench scale` between CPU ranks: every layout in one job, the same tokens in all of them,
// figures and predictions beside each other.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace weft::test {
namespace {

using nlohmann::json;

constexpr int kSeconds = 100;
const std::string kDemo = WEFT_SOURCE_DIR "/configs/models/demo";

std::vector<std::string> words(std::vector<std::string> more) {
  more.insert(more.begin(), {"bench", "scale", "--backend", "cpu", "--model", kDemo, "--configs",
                             WEFT_SOURCE_DIR "/configs", "--steps", "3"});
  return more;
}

json measure(int n_ranks, const std::vector<std::string>& more) {
  std::vector<std::string> all = words(more);
  all.push_back("--json");
  const CommandResult result = run_weft(n_ranks, all, kSeconds);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.status == 0 ? json::parse(result.out) : json();
}

std::vector<std::string> names(const json& found) {
  std::vector<std::string> all;
  for (const json& layout : found["layouts"]) all.push_back(layout["layout"]);
  return all;
}

TEST(BenchScale, EveryLayoutOfTheRanksGivesTheSameTokens) {
  const json found =
      measure(4, {"--layouts", "all 4x1,2x2", "--weights", "synthetic:1", "--batch", "1,4",
                  "--context", "100", "--prefill", "130", "--prefill-chunk", "32"});
  ASSERT_FALSE(found.is_null());
  EXPECT_EQ(names(found), (std::vector<std::string>{"6x1", "6x2", "3x1,3x1", "4x1,2x2", "6x4",
                                                    "3x2,3x2", "2x1,2x1,1x1,1x1"}));
  EXPECT_EQ(found["numerics"], "invariant");
  ASSERT_EQ(found["read_gbps"].size(), 4u);
  EXPECT_GT(found["read_gbps"][3].get<double>(), 0);
  for (const json& layout : found["layouts"]) {
    SCOPED_TRACE(layout["layout"].get<std::string>());
    EXPECT_EQ(layout["same_tokens"], true);
    ASSERT_EQ(layout["cases"].size(), 3u);
    for (const json& one : layout["cases"]) {
      EXPECT_EQ(one["measured"], true);
      EXPECT_GT(one["efficiency"].get<double>(), 0);
      ASSERT_TRUE(one["predicted_ms"].is_number()) << found["no_prediction"];
      const double ms = one[one["work"] == "decode" ? "tpot_ms" : "ttft_ms"];
      EXPECT_NEAR(one["error"], one["predicted_ms"].get<double>() / ms - 1, 1e-6);
    }
    const double rate = layout["cases"][1]["tokens_per_s"];
    EXPECT_NEAR(rate, 4e3 / layout["cases"][1]["tpot_ms"].get<double>(), 1e-6 * rate);
    EXPECT_GT(layout["cases"][0]["read_share"].get<double>(), 0);
  }
  EXPECT_DOUBLE_EQ(found["layouts"][0]["cases"][0]["efficiency"], 1);
  EXPECT_EQ(found["verdicts"].size(), 3u);
  EXPECT_GT(found["median_error"].get<double>(), 0);
}

// Tokens are compared in invariant numerics, whatever is timed.
TEST(BenchScale, FastNumericsAreTimedWithTheTokensOfInvariantOnes) {
  const json found = measure(
      2, {"--numerics", "fast", "--context", "64", "--prefill", "64", "--layouts", "3x1,3x1"});
  EXPECT_EQ(names(found), (std::vector<std::string>{"6x1", "3x1,3x1"}));
  EXPECT_EQ(found["numerics"], "fast");
  EXPECT_EQ(found["layouts"][1]["same_tokens"], true);
  EXPECT_EQ(found["layouts"][1]["cases"][1]["measured"], true);
}

TEST(BenchScale, TheTableIsForPeople) {
  const CommandResult result =
      run_weft(2, words({"--context", "64", "--prefill", "64", "--layouts", "6x2"}), kSeconds);
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part : {"decode batch 1, context 64", "prefill 64", "efficiency", "6x2", "same",
                           "ranked first by the plan", "median error"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

TEST(BenchScale, BadInputIsRefusedBeforeAnythingIsMeasured) {
  const auto refused = [](int n_ranks, const std::vector<std::string>& more,
                          const std::vector<std::string>& parts) {
    const CommandResult result = run_weft(n_ranks, words(more), kSeconds);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& part : parts)
      EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
  };
  refused(2, {"--layouts", "6x4"}, {"needs 4 ranks and the job has 2"});
  refused(2, {"--layouts", "5x2"}, {"5 layers, the model 6"});
  refused(2, {"--layouts", "6x3"}, {"layout 6x3"});
  refused(2, {"--context", "4096"}, {"--context 4096", "2048"});
  refused(2, {"--batch", "0"}, {"--batch 0"});
  refused(2, {"--layout", "6x2"}, {"--layouts"});
  refused(1, {"--weights", "synthetic:x"}, {"synthetic"});
  refused(2, {"--cluster", "no-such"}, {"no-such"});
}

}  // namespace
}  // namespace weft::test
