// Against transformers: float32 logits within 1e-4 of the largest and the same 32 greedy tokens,
// for each model family; the demo model's greedy text.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/support/command.h"
#include "tests/support/logits_file.h"

namespace weft::test {
namespace {

using nlohmann::json;

class Families : public testing::TestWithParam<std::string> {};

void expect_as_transformers(const std::string& family, int n_ranks,
                            const std::vector<std::string>& more) {
  const std::string folder = WEFT_SOURCE_DIR "/tests/data/families/" + family;
  const std::string reference = folder + "/reference.safetensors";
  const auto tokens = read_tensor<int32_t>(reference, "tokens");
  const auto expected = read_tensor<float>(reference, "logits");
  const TemporaryFolder temporary;
  const json prompt = {{"prompt_token_ids", read_tensor<int32_t>(reference, "prompt_ids")}};
  write_file(temporary / "prompt.jsonl", prompt.dump());
  std::vector<std::string> arguments = {"run",
                                        "--model",
                                        folder,
                                        "--prompts",
                                        temporary / "prompt.jsonl",
                                        "--dtype",
                                        "f32",
                                        "--json",
                                        "--logits",
                                        temporary / "logits.safetensors",
                                        "--max-tokens",
                                        std::to_string(tokens.size()),
                                        "--ignore-eos"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const CommandResult result = run_weft(n_ranks, arguments);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["token_ids"].get<std::vector<int32_t>>(), tokens);

  EXPECT_TRUE(
      near_largest(read_tensor<float>(temporary / "logits.safetensors", "logits.0"), expected))
      << "of [32, vocab]; want: transformers";
}

TEST_P(Families, OneRank) { expect_as_transformers(GetParam(), 1, {}); }
TEST_P(Families, FastNumerics) { expect_as_transformers(GetParam(), 1, {"--numerics", "fast"}); }
TEST_P(Families, TwoStagesOfDifferentWidth) {
  expect_as_transformers(GetParam(), 3, {"--layout", "2x1,1x2", "--prefill-chunk", "7"});
}

INSTANTIATE_TEST_SUITE_P(Transformers, Families,
                         testing::Values("llama-linear", "llama3", "llama-yarn", "llama-biases",
                                         "mistral", "qwen2", "qwen3", "llama-mha-tied",
                                         "llama-default-gqa"),
                         [](const auto& given) {
                           std::string name = given.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Every prompt of the demo model's reference, in one run: ids from the tokenizer, greedy ids, text.
TEST(DemoModel, WritesWhatTransformersWrites) {
  const std::string folder = WEFT_SOURCE_DIR "/configs/models/demo";
  const json reference =
      json::parse(read_text(WEFT_SOURCE_DIR "/tests/data/demo_reference.json", 1 << 22))["prompts"];
  ASSERT_GE(reference.size(), 5u);
  const TemporaryFolder temporary;
  std::string lines;
  for (const json& entry : reference) lines += json{{"prompt", entry["prompt"]}}.dump() + "\n";
  write_file(temporary / "prompts.jsonl", lines);
  const CommandResult result =
      run_weft(1, {"run", "--model", folder, "--prompts", temporary / "prompts.jsonl", "--dtype",
                   "f32", "--json", "--max-tokens", "48", "--temperature", "0"});
  ASSERT_EQ(result.status, 0) << result.err;
  std::istringstream out(result.out);
  for (const json& entry : reference) {
    SCOPED_TRACE(entry["prompt"].get<std::string>());
    std::string line;
    ASSERT_TRUE(std::getline(out, line));
    const json object = json::parse(line);
    EXPECT_EQ(object["prompt_tokens"], entry["prompt_ids"].size());
    EXPECT_EQ(object["token_ids"], entry["token_ids"]);
    EXPECT_EQ(object["text"], entry["text"]);
    EXPECT_EQ(object["finish_reason"], entry["finish_reason"]);
  }
}

}  // namespace
}  // namespace weft::test
