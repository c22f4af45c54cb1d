// `weft bench kernels` on CPU ranks: which kernels and works there are. How good the times are is
// for a quiet machine to say.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace weft {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::run_weft;

const std::string kModel = std::string(WEFT_SOURCE_DIR) + "/configs/models/demo";

CommandResult bench(int n_ranks, std::vector<std::string> more) {
  std::vector<std::string> words = {"bench",   "kernels", "--backend", "cpu",
                                    "--quick", "--model", kModel};
  words.insert(words.end(), more.begin(), more.end());
  return run_weft(n_ranks, words);
}

TEST(BenchKernels, EveryKernelStandsBesideItsLimit) {
  const CommandResult result =
      bench(1, {"--json", "--batch", "1,3", "--context", "65,130", "--prefill", "33"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json out = json::parse(result.out);
  EXPECT_GT(out["read_gbps"].get<double>(), 0);
  EXPECT_GT(out["product_tflops"].get<double>(), 0);
  std::map<std::string, int> n_works;
  for (const json& row : out["kernels"]) {
    ++n_works[row["kernel"]];
    EXPECT_GT(row["us"].get<double>(), 0);
    EXPECT_GT(row["limit_us"].get<double>(), 0);
    EXPECT_DOUBLE_EQ(row["ratio"].get<double>(),
                     row["us"].get<double>() / row["limit_us"].get<double>());
  }
  EXPECT_EQ(n_works.size(), 12u);
  EXPECT_EQ(n_works["attention"], 5) << "two batches at two contexts, one prompt";
  EXPECT_EQ(n_works["qkv"], 3) << "does not see the context";
}

TEST(BenchKernels, RanksMeasureTheirPartAtOnce) {
  const CommandResult result =
      bench(2, {"--tp", "2", "--op", "o,sampling", "--op", "rope", "--batch", "2"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("tp 2, bf16, CPU, 2 ranks at once"), std::string::npos) << result.out;
  for (const char* kernel : {"\no ", "\nsampling ", "\nrope "})
    EXPECT_NE(result.out.find(kernel), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("\nqkv"), std::string::npos);
}

TEST(BenchKernels, BadInputIsRefused) {
  const auto refused = [](std::vector<std::string> words, const std::string& part) {
    const CommandResult result = bench(1, words);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  refused({"--op", "attnetion"}, "did you mean \"attention\"?");
  refused({"--batch", "0"}, "--batch 0: must be at least 1");
  refused({"--tp", "3"}, "TP 3: does not divide 8 heads");
  refused({"--modle", "x"}, "--model");
  refused({"--op", "o", "--tp", "0"}, "--tp");
}

}  // namespace
}  // namespace weft
