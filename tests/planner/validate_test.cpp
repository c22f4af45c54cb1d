// Predictions beside measured rows: what is left out, how picks count, and the accuracy on the
// measured rows where they are at hand.
#include "planner/validate.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

MeasuredRow row_of(size_t tp, size_t concurrency, double ttft_ms, double tpot_ms) {
  MeasuredRow row;
  row.model = "Qwen/Qwen3-32B";
  row.gpu = "h100";
  row.engine = "vllm";
  row.engine_version = "0.12.0";
  row.prompt_tokens = 1024;
  row.output_tokens = 128;
  row.concurrency = concurrency;
  row.tp = tp;
  row.ttft_ms = ttft_ms;
  row.tpot_ms = tpot_ms;
  return row;
}

RowPrediction predicted(const MeasuredRow& row) {
  Catalog catalog(configs());
  return predict_row(catalog, row);
}

TEST(Validate, ModelsGoByAllTheirNames) {
  Catalog catalog(configs());
  for (const std::string name :
       {"meta-llama/Llama-3.1-8B-Instruct", "nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b"})
    EXPECT_EQ(catalog.model(name).name, "llama-3.1-8b");
  EXPECT_SAYS(error_of([&] { catalog.model("Qwen/Qwen3-32b"); }),
              "did you mean \"Qwen/Qwen3-32B\"");
}

TEST(Validate, PredictsAnOrdinaryRow) {
  const RowPrediction got = predicted(row_of(4, 32, 182, 19.18));
  EXPECT_EQ(got.left_out, "");
  EXPECT_FALSE(got.saturated);
  EXPECT_TRUE(got.scored_ttft);
  EXPECT_NEAR(got.tpot_ms / 19.18, 1, 0.15);
  EXPECT_NEAR(got.ttft_ms / 182, 1, 0.25);
  EXPECT_GT(got.decode.products_ms, got.decode.attention_ms);
}

TEST(Validate, PipelineStagesShareTheModel) {
  MeasuredRow row = row_of(2, 32, 200, 30);
  const RowPrediction one = predicted(row);
  row.pp = 2;
  const RowPrediction two = predicted(row);
  EXPECT_EQ(two.left_out, "");
  EXPECT_GT(two.tokens_per_s, one.tokens_per_s);
  EXPECT_NEAR(two.decode.attention_ms, one.decode.attention_ms / 2, 0.1 * one.decode.attention_ms);
}

TEST(Validate, DataParallelAttentionServesInGroups) {
  MeasuredRow row = row_of(8, 64, 500, 30);
  row.model = "Qwen/Qwen3-235B-A22B-FP8";
  row.gpu = "h200";
  row.weights = NumberFormat::fp8;
  row.moe_ep = 8;
  const RowPrediction tensor = predicted(row);
  row.tp = 1;
  row.attention_dp = 8;
  const RowPrediction data = predicted(row);
  EXPECT_EQ(data.left_out, "");
  EXPECT_EQ(data.served_at_once, 64);
  // Eight prompts are prefilled at once, each on one GPU: later, and no more of them in all.
  EXPECT_GT(data.prefill.attention_ms, 4 * tensor.prefill.attention_ms);
  EXPECT_LT(data.tpot_ms, 2 * tensor.tpot_ms);
  EXPECT_GT(data.tpot_ms, tensor.tpot_ms / 2);
}

TEST(Validate, ASaturatedRowIsPredictedAsSaturated) {
  MeasuredRow row = row_of(2, 128, 58752, 55.2);
  row.prompt_tokens = 4096;
  row.output_tokens = 1024;
  const RowPrediction got = predicted(row);
  EXPECT_TRUE(got.saturated);
  EXPECT_FALSE(got.scored_ttft);
  EXPECT_LT(got.served_at_once, 128);
  EXPECT_GT(got.ttft_ms, 10000);
}

TEST(Validate, LeavesOutWhatNoHardwareCouldHaveDone) {
  EXPECT_SAYS(predicted(row_of(4, 1, 100, 2)).left_out,
              "a token in 2.00 ms, but reading its weights takes 4.66 ms");
  EXPECT_SAYS(predicted(row_of(4, 128, 100, 6)).left_out, "128 requests in 862 ms, but");
}

TEST(Validate, LeavesOutWhatCannotBeSplitOrHeld) {
  EXPECT_SAYS(predicted(row_of(3, 1, 100, 20)).left_out, "TP 3");
  MeasuredRow row = row_of(1, 1, 1000, 200);
  row.model = "llama-3.1-70b";
  EXPECT_SAYS(predicted(row).left_out, "weights and buffers take");
  row = row_of(1, 1, 1000, 200);
  row.pp = 65;
  EXPECT_SAYS(predicted(row).left_out, "pp 65 is more than 64 layers");
  row = row_of(4, 1, 1000, 200);
  row.model = "qwen3-235b-a22b";
  row.moe_ep = 3;
  EXPECT_SAYS(predicted(row).left_out, "moe_ep 3 does not divide");
  row.model = "gpt-2";
  EXPECT_SAYS(predicted(row).left_out, "no model is called \"gpt-2\"");
}

TEST(Validate, AnUnknownGpuIsAnError) {
  MeasuredRow row = row_of(1, 1, 100, 20);
  row.gpu = "b200";
  EXPECT_SAYS(error_of([&] { predicted(row); }), "no profile of GPU \"b200\"");
}

TEST(Validate, HalvesAreOfShapesAndNotOfRows) {
  MeasuredRow row = row_of(1, 1, 100, 20);
  const bool half = in_fit_half(row);
  row.tp = 8;
  row.concurrency = 33;
  row.engine = "sglang";
  EXPECT_EQ(in_fit_half(row), half);
  size_t fit = 0;
  for (row.prompt_tokens = 1; row.prompt_tokens <= 1000; ++row.prompt_tokens)
    fit += in_fit_half(row);
  EXPECT_NEAR(static_cast<double>(fit), 500, 80);
}

CheckedRow checked(size_t tp, double tpot_ms, double predicted_tpot_ms, double predicted_rate) {
  CheckedRow row;
  row.row = row_of(tp, 8, 100, tpot_ms);
  row.prediction.tpot_ms = predicted_tpot_ms;
  row.prediction.ttft_ms = 100;
  row.prediction.tokens_per_s = predicted_rate;
  return row;
}

TEST(Validate, PicksCountWhereTheMeasuredBestOrNearlyItIsTaken) {
  // tp 1 misses 15 ms, meets 25 and 40 and is the better there; tp 4 meets all.
  const std::vector<CheckedRow> right = {checked(1, 20, 19, 400), checked(4, 10, 11, 700)};
  Picks picks = pick_layouts(right);
  EXPECT_EQ(picks.cases, 3u);
  EXPECT_EQ(picks.best_or_within_5_percent, 3u);
  EXPECT_EQ(picks.largest_tp, 1u);
  EXPECT_EQ(picks.smallest_tp, 2u);
  // Predicted to miss 25 ms, so that the other size is taken there: wrong.
  const std::vector<CheckedRow> wrong = {checked(1, 20, 26, 400), checked(4, 10, 11, 700)};
  EXPECT_EQ(pick_layouts(wrong).best_or_within_5_percent, 2u);
  // No size meets any limit; one size alone is no choice.
  EXPECT_EQ(pick_layouts({checked(1, 99, 9, 1), checked(2, 99, 9, 1)}).cases, 0u);
  EXPECT_EQ(pick_layouts({checked(2, 9, 9, 1), checked(2, 8, 9, 1)}).cases, 0u);
}

TEST(Validate, ErrorsAreMediansOverPredictedRows) {
  std::vector<CheckedRow> rows = {checked(1, 10, 11, 1), checked(1, 10, 8, 1),
                                  checked(1, 10, 14, 1), checked(1, 10, 99, 1)};
  rows[3].prediction.left_out = "impossible";
  rows[0].prediction.scored_ttft = true;
  rows[0].prediction.ttft_ms = 130;
  const ErrorSummary errors = summarize({&rows[0], &rows[1], &rows[2], &rows[3]});
  EXPECT_EQ(errors.rows, 3u);
  EXPECT_EQ(errors.left_out, 1u);
  EXPECT_NEAR(errors.tpot_median_error, 0.2, 1e-12);
  EXPECT_EQ(errors.scored_ttft_rows, 1u);
  EXPECT_NEAR(errors.ttft_median_error, 0.3, 1e-12);
  EXPECT_TRUE(std::isnan(summarize({}).tpot_median_error));
}

TEST(Validate, JsonHoldsSummaryGroupsAndPicks) {
  Catalog catalog(configs());
  const Validation validation =
      validate(catalog, {row_of(2, 8, 154, 18), row_of(4, 8, 126, 11.8), row_of(4, 1, 100, 2)});
  const nlohmann::json json = nlohmann::json::parse(validation_json(validation));
  ASSERT_EQ(json.at("groups").size(), 1u);
  const nlohmann::json& group = json.at("groups").at(0);
  EXPECT_EQ(group.at("model"), "Qwen/Qwen3-32B");
  EXPECT_EQ(group.at("weights"), "bf16");
  EXPECT_EQ(group.at("rows"), 2);
  EXPECT_EQ(group.at("scored_ttft_rows"), 2);
  EXPECT_LT(group.at("tpot_median_error"), 0.2);
  EXPECT_LT(group.at("ttft_median_error"), 0.3);
  EXPECT_EQ(json.at("summary").at("rows"), 2);
  EXPECT_EQ(json.at("left_out").size(), 1u);
  EXPECT_GT(json.at("picks").at("cases"), 0);
  EXPECT_EQ(json.at("rows").size(), 3u);
  EXPECT_SAYS(validation_table(validation), "Qwen/Qwen3-32B h100 vllm 0.12.0 bf16");
}

std::string measured_rows_path() {
  const char* shared = std::getenv("WEFT_SHARED");
  const std::string folder = shared ? shared : std::string(WEFT_SOURCE_DIR) + "/../shared";
  return folder + "/measured/serving_h100_h200.csv";
}

// The figures that the shipped profiles were accepted with.
TEST(Validate, MeasuredServingIsPredictedWithinItsBounds) {
  const std::string path = measured_rows_path();
  if (!is_file(path)) GTEST_SKIP() << path << " is not here (set WEFT_SHARED)";
  Catalog catalog(configs());
  const Validation validation = validate(catalog, read_measured_rows(path));
  EXPECT_LE(validation.dense.tpot_median_error, 0.07);
  EXPECT_LE(validation.moe.tpot_median_error, 0.20);
  EXPECT_LE(validation.all.ttft_median_error, 0.15);
  EXPECT_LE(validation.held_out.tpot_median_error, 0.08);
  for (const ErrorGroup& group : validation.groups) {
    const std::string name = group.model + " " + group.gpu + " " + group.engine;
    if (group.errors.rows >= 10) {
      EXPECT_LE(group.errors.tpot_median_error, 0.20) << name;
    }
    if (group.errors.scored_ttft_rows >= 10) {
      EXPECT_LE(group.errors.ttft_median_error, 0.30) << name;
    }
  }
  const Picks& picks = validation.picks;
  EXPECT_GE(static_cast<double>(picks.best_or_within_5_percent),
            0.85 * static_cast<double>(picks.cases));
  EXPECT_GT(picks.best_or_within_5_percent, std::max(picks.largest_tp, picks.smallest_tp));
}

}  // namespace
}  // namespace weft::planner
