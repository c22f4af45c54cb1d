// The layouts of a number of ranks, and hand-worked shares, efficiencies and verdicts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launch/scale_layouts.h"
#include "launch/scale_report.h"
#include "planner/model_spec.h"
#include "runtime/hf_config.h"
#include "tests/support/error_text.h"

namespace weft::launch {
namespace {

using Texts = std::vector<std::string>;

const std::string kConfigs = std::string(WEFT_SOURCE_DIR) + "/configs";

Texts layouts(const std::string& list, size_t n_ranks, const std::string& model) {
  Texts texts;
  for (const StageLayouts& layout :
       scale_layouts(list, runtime::read_model(kConfigs + "/models/" + model), n_ranks))
    texts.push_back(layout_text(layout));
  return texts;
}

TEST(ScaleLayouts, AllAreTheWidthsAndDepthsThatDivideTheRanks) {
  EXPECT_EQ(layouts("all", 4, "demo"),
            (Texts{"6x1", "6x2", "3x1,3x1", "6x4", "3x2,3x2", "2x1,2x1,1x1,1x1"}));
  EXPECT_EQ(layouts("all", 3, "demo"), (Texts{"6x1", "2x1,2x1,2x1"}));
  const Texts eight = layouts("all", 8, "deepseek-coder-33b.yaml");
  EXPECT_EQ(eight.size(), 10u);
  EXPECT_EQ(eight.front(), "62x1");
  EXPECT_EQ(eight[6], "62x8");
  EXPECT_EQ(eight[8], "16x2,16x2,15x2,15x2");
}

TEST(ScaleLayouts, OneRankComesFirstAndNoneTwice) {
  EXPECT_EQ(layouts("3x2,3x2 4x1,2x1", 4, "demo"), (Texts{"6x1", "4x1,2x1", "3x2,3x2"}));
  EXPECT_EQ(layouts("6x1 6x2 6x2 all", 2, "demo"), (Texts{"6x1", "6x2", "3x1,3x1"}));
}

TEST(ScaleLayouts, WhatCantBeIsNamed) {
  EXPECT_ERROR(layouts("6x4", 2, "demo"), "needs 4 ranks and the job has 2");
  EXPECT_ERROR(layouts("4x2", 4, "demo"), "have 4 layers, the model 6");
  EXPECT_ERROR(layouts("6x3", 4, "demo"), "3");
  EXPECT_ERROR(layouts("al", 4, "demo"), "LAYERSxTP");
  EXPECT_ERROR(layouts(" ", 4, "demo"), "names none");
  EXPECT_ERROR(layouts("6x3 5x1", 4, "demo"), "2 problems");
}

// One rank takes 20 ms, two 12.5 ms, four 8: 20 / (2 x 12.5) = 0.8; 20 / (4 x 8) = 0.625. Of 40 GB
// that four ranks read at 4000 GB/s 10 ms are needed at one rank, 2.5 at four.
ScaleReport report() {
  ScaleReport made;
  made.model = "m";
  made.device = "NVIDIA H200";
  made.dtype = "bf16";
  made.numerics = "fast";
  made.read_gbps = {4000, 4000, 4000, 4000};
  made.cases = {{false, 8, 2048, 40'000'000'000}, {true, 1, 2048, 0}};
  made.layouts = {{"62x1", 1, "", true, {ScaleFigure{20, 22.0}, std::nullopt}},
                  {"62x2", 2, "", true, {ScaleFigure{12.5, 11.25}, ScaleFigure{100, 90.0}}},
                  {"62x4", 4, "", true, {ScaleFigure{8, 8.0}, ScaleFigure{62.5, 95.0}}}};
  return made;
}

TEST(ScaleReports, EfficiencyIsByTheFirstLayoutThatHasAFigure) {
  const ScaleReport made = report();
  EXPECT_DOUBLE_EQ(*efficiency(made, 0, 0), 1);
  EXPECT_DOUBLE_EQ(*efficiency(made, 1, 0), 0.8);
  EXPECT_DOUBLE_EQ(*efficiency(made, 2, 0), 0.625);
  EXPECT_FALSE(efficiency(made, 0, 1)) << "it does not fit";
  EXPECT_DOUBLE_EQ(*efficiency(made, 2, 1), 0.8) << "by two ranks: 100 x 2 / (62.5 x 4)";
}

TEST(ScaleReports, ReadsAndRates) {
  const ScaleReport made = report();
  EXPECT_DOUBLE_EQ(*read_share(made, 0, 0), 0.5);
  EXPECT_DOUBLE_EQ(*read_share(made, 2, 0), 2.5 / 8);
  EXPECT_FALSE(read_share(made, 2, 1)) << "a prompt is not read-bound";
  EXPECT_EQ(scale_text(made).find("stay in caches"), std::string::npos);
  ScaleReport small = made;
  small.cases[0].read_bytes = 100'000'000'000;  // 25 ms at one rank, which takes 20
  EXPECT_NE(scale_text(small).find("stay in caches"), std::string::npos);
  EXPECT_DOUBLE_EQ(tokens_per_s(made.cases[0], *made.layouts[2].figures[0]), 1000);
  EXPECT_DOUBLE_EQ(tokens_per_s(made.cases[1], *made.layouts[1].figures[1]), 20480);
}

// Errors: +10 %, -10 %, 0, -10 %, +52 %: the median of 0 10 10 10 52 is 10.
TEST(ScaleReports, VerdictsAndErrors) {
  const ScaleReport made = report();
  EXPECT_TRUE(verdict(made, 0)->agrees());
  EXPECT_EQ(verdict(made, 0)->measured, 2u);
  EXPECT_EQ(verdict(made, 1)->predicted, 1u);
  EXPECT_FALSE(verdict(made, 1)->agrees());
  EXPECT_NEAR(*median_error(made), 0.1, 1e-12);
  EXPECT_FALSE(failed(made));
  const std::string text = scale_text(made);
  for (const char* part : {"does not fit", "ranked first by the plan, and fastest: 62x4",
                           "ranked first by the plan: 62x2; fastest: 62x4", "62.5 %",
                           "median error of the predictions: 10.0 %"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(ScaleReports, OtherTokensAndFailuresAreFailures) {
  ScaleReport made = report();
  made.layouts[1].same_tokens = false;
  EXPECT_TRUE(failed(made));
  EXPECT_NE(scale_text(made).find("OTHER"), std::string::npos);
  made = report();
  made.layouts[2].failure = "no memory";
  made.layouts[2].figures.assign(2, std::nullopt);
  EXPECT_TRUE(failed(made));
  EXPECT_NE(scale_text(made).find("failed: no memory"), std::string::npos);
  const auto parsed = nlohmann::json::parse(scale_json(made));
  EXPECT_EQ(parsed["layouts"][2]["failure"], "no memory");
  EXPECT_FALSE(parsed["layouts"][2]["cases"][0]["measured"]);
  EXPECT_DOUBLE_EQ(parsed["layouts"][1]["cases"][0]["efficiency"], 0.8);
}

}  // namespace
}  // namespace weft::launch
