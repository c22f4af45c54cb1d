// Widths that are no power of two, and more ranks than invariant mode has chunks: six heads, three
// ways to share them. `fast` numerics may round otherwise on each, and no further than that.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/support/command.h"
#include "tests/support/logits_file.h"

namespace weft::test {
namespace {

using nlohmann::json;

constexpr size_t kTokens = 16;
constexpr size_t kVocab = 300;

// 2 chunks in invariant mode; an FFN that no width divides without padding.
std::string facts(int n_kv_heads) {
  return R"(version: 1
name: six-heads
architecture: LlamaForCausalLM
n_layers: 3
hidden: 96
n_heads: 6
head_dim: 16
ffn: 100
vocab: 300
context: 256
rope:
  theta: 10000
norm_eps: 1e-06
dtype: f32
n_kv_heads: )" +
         std::to_string(n_kv_heads) + "\n";
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logits;  // [kTokens, kVocab]
};

Answer answer(int n_kv_heads, int tp, const std::string& numerics) {
  const TemporaryFolder folder;
  write_file(folder / "six.yaml", facts(n_kv_heads));
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 41; ++i) prompt.push_back(i * 53 % 300);
  write_file(folder / "prompt.jsonl", json{{"prompt_token_ids", prompt}}.dump());
  const CommandResult result =
      run_weft(tp, {"run", "--model", folder / "six.yaml", "--weights", "synthetic:3", "--tp",
                    std::to_string(tp), "--numerics", numerics, "--dtype", "f32", "--prompts",
                    folder / "prompt.jsonl", "--max-tokens", std::to_string(kTokens), "--json",
                    "--logits", folder / "logits.safetensors"});
  EXPECT_EQ(result.status, 0) << result.err;
  if (result.status != 0) return {};
  return {json::parse(result.out)["token_ids"],
          read_tensor<float>(folder / "logits.safetensors", "logits.0")};
}

class OddTp : public testing::TestWithParam<int> {};  // KV heads

TEST_P(OddTp, FastIsNearInvariantAtEveryWidth) {
  const Answer expected = answer(GetParam(), 1, "invariant");
  ASSERT_EQ(expected.ids.size(), kTokens);
  ASSERT_EQ(expected.logits.size(), kTokens * kVocab);
  for (int tp : {1, 2, 3, 6}) {
    if (GetParam() % tp != 0 && tp % GetParam() != 0) continue;  // refused by any numerics
    SCOPED_TRACE(testing::Message() << "tp " << tp);
    const Answer fast = answer(GetParam(), tp, "fast");
    EXPECT_EQ(fast.ids, expected.ids);
    EXPECT_TRUE(near_largest(fast.logits, expected.logits));
  }
}

INSTANTIATE_TEST_SUITE_P(KvHeads, OddTp, testing::Values(6, 3));

TEST(OddTpInvariant, TwoRanksGiveTheBitsOfOne) {
  const Answer one = answer(6, 1, "invariant");
  const Answer two = answer(6, 2, "invariant");
  ASSERT_EQ(one.logits.size(), kTokens * kVocab);
  EXPECT_EQ(one.ids, two.ids);
  EXPECT_TRUE(one.logits == two.logits) << "logits differ in some bit";
}

}  // namespace
}  // namespace weft::test
