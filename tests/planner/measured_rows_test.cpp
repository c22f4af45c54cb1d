// Rows of measured serving as CSV.
#include "planner/measured_rows.h"

#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

const std::string kHeader =
    "model,gpu,engine,engine_version,weights,prompt_tokens,output_tokens,concurrency,tp,pp,"
    "attention_dp,moe_tp,moe_ep,ttft_ms,tpot_ms\n";
const std::string kRow = "m,h100,vllm,,fp8,1024,128,8,2,1,1,0,0,100.5,10.25\n";

std::string refused(const std::string& text) {
  return error_of([&] { parse_measured_rows(text, "rows.csv"); });
}

TEST(MeasuredRows, AreRead) {
  const std::vector<MeasuredRow> rows = parse_measured_rows(kHeader + kRow + "\r\n" + kRow, "r");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].line, 2u);
  EXPECT_EQ(rows[1].line, 4u);
  EXPECT_EQ(rows[0].weights, NumberFormat::fp8);
  EXPECT_EQ(rows[0].engine_version, "");
  EXPECT_EQ(rows[0].moe_ep, 1u);
  EXPECT_EQ(rows[0].tpot_ms, 10.25);
  EXPECT_EQ(gpus_of(rows[0]), 2u);
  EXPECT_DOUBLE_EQ(tokens_per_s(rows[0]), 8 * 128 / (100.5 + 127 * 10.25) * 1000);
}

TEST(MeasuredRows, ColumnsMayStandInAnyOrder) {
  const std::string text =
      "tpot_ms,ttft_ms,moe_ep,moe_tp,attention_dp,pp,tp,concurrency,output_tokens,prompt_tokens,"
      "weights,engine_version,engine,gpu,model\n10.25,100.5,0,0,1,1,2,8,128,1024,fp8,,vllm,h100,"
      "m\n";
  EXPECT_EQ(parse_measured_rows(text, "r").at(0).prompt_tokens, 1024u);
}

TEST(MeasuredRows, RefuseWhatIsNoRow) {
  EXPECT_SAYS(refused(""), "rows.csv: holds no rows");
  EXPECT_SAYS(refused(kHeader), "rows.csv: holds no rows");
  EXPECT_SAYS(refused("modle" + kHeader.substr(5)),
              "rows.csv:1: unknown column \"modle\" (did you");
  EXPECT_SAYS(refused("model,model\n"), "column \"model\" is there twice");
  EXPECT_SAYS(refused("model,gpu\n"), "column \"engine\" is missing");
  EXPECT_SAYS(refused(kHeader + "m,h100\n"), "rows.csv:2: has 2 values, not 15");
  EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp9,1,1,1,1,1,1,1,1,1,1\n"),
              "rows.csv:2: weights: \"fp9\" is none of bf16, fp8, int8, int4");
  EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp8,1,1,1,0,1,1,1,1,1,1\n"), "tp: 0 is not above 0");
  EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp8,1,1,1,1000000000,1000000000,30,1,1,1,1\n"),
              "tp 1000000000, pp 1000000000 and attention_dp 30 are more than 1000000 GPUs");
  EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp8,1,1,1,1,1,1,1,1,1e-300,1\n"),
              "ttft_ms: 1e-300 is not from 1e-06 to");
  EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp8,-1,1,1,1,1,1,1,1,1,1\n"),
              "prompt_tokens: \"-1\"");
  EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp8,1e3,1,1,1,1,1,1,1,1,1\n"), "\"1e3\"");
  EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp8,99999999999,1,1,1,1,1,1,1,1,1\n"),
              "is not a whole number from 0 to 1000000000");
  for (const std::string bad : {"0", "-1", "nan", "inf", "x", ""})
    EXPECT_SAYS(refused(kHeader + "m,h100,vllm,,fp8,1,1,1,1,1,1,1,1,1," + bad + "\n"),
                "tpot_ms: \"" + bad + "\" is not a number above 0");
}

}  // namespace
}  // namespace weft::planner
