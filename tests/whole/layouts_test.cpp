// The same tokens and the same bits of logits from every layout, batch and chunking, as a user
// would run them: under mpirun, on the demo model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/support/command.h"
#include "tests/support/logits_file.h"

namespace weft::test {
namespace {

using nlohmann::json;

constexpr size_t kVocab = 2048;  // of the demo model

struct Layout {
  std::string name;
  int n_ranks;
  std::vector<std::string> flags;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// Seven prompts of different lengths. The longest passes two of the absolute multiples of 512
// tokens at which attention restarts its softmax, and the chunks of the runs below lie across them.
constexpr size_t kLongest = 2;  // its index
constexpr size_t kLongestTokens = 1100;

std::vector<json> seven_prompts() {
  std::string longest = "def parse(lines):\n";
  for (int i = 0; i < 130; ++i) longest += "    value = lines[" + std::to_string(i) + "]\n";
  std::vector<json> prompts;
  for (const std::string& text : {std::string("def fibonacci(n):"), std::string("import os"),
                                  longest, std::string("class Stack:\n    def __init__(self):"),
                                  std::string("x"), std::string("for i in range(10):\n    print(i"),
                                  std::string("# \xe8\xaf\xbb\xe5\x8f\x96\nwith open(")})
    prompts.push_back({{"prompt", text}});
  return prompts;
}

std::vector<json> first_prompt() { return {seven_prompts()[0]}; }

struct Output {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> texts;
  std::vector<size_t> n_prompt;
  std::vector<std::vector<uint32_t>> logits;  // of each prompt, [tokens, vocab], as bits
  std::string log;
};

Output run_layout(const Layout& layout, const std::vector<json>& prompts,
                  const std::vector<std::string>& more) {
  const TemporaryFolder folder;
  std::string lines;
  for (const json& prompt : prompts) lines += prompt.dump() + "\n";
  write_file(folder / "prompts.jsonl", lines);
  const std::string logits = folder / "logits.safetensors";
  std::vector<std::string> arguments = {"run",
                                        "--model",
                                        WEFT_SOURCE_DIR "/configs/models/demo",
                                        "--prompts",
                                        folder / "prompts.jsonl",
                                        "--json",
                                        "--logits",
                                        logits,
                                        "--ignore-eos"};
  arguments.insert(arguments.end(), layout.flags.begin(), layout.flags.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  const CommandResult result = run_weft(layout.n_ranks, arguments);
  EXPECT_FALSE(result.timed_out) << result.err;
  EXPECT_EQ(result.status, 0) << result.err;
  Output output;
  output.log = result.err;
  if (result.status != 0) return output;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) {
    const json object = json::parse(line);
    const std::string name = "logits." + std::to_string(output.ids.size());
    output.ids.push_back(object["token_ids"]);
    output.texts.push_back(object["text"]);
    output.n_prompt.push_back(object["prompt_tokens"]);
    output.logits.push_back(read_tensor<uint32_t>(logits, name));
  }
  return output;
}

// A run of n tokens a prompt gave that many ids, and logits for each.
void expect_complete(const Output& output, size_t n_prompts, size_t n_tokens) {
  ASSERT_EQ(output.ids.size(), n_prompts);
  for (size_t i = 0; i < n_prompts; ++i) {
    EXPECT_EQ(output.ids[i].size(), n_tokens);
    EXPECT_EQ(output.logits[i].size(), n_tokens * kVocab);
  }
}

void expect_same(const Output& a, const Output& b) {
  ASSERT_FALSE(b.ids.empty());
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.texts, b.texts);
  EXPECT_TRUE(a.logits == b.logits) << "logits differ in some bit";
}

const Layout& one_rank() {
  static const Layout layout{"one_rank", 1, {"--threads", "1"}};
  return layout;
}

using Flags = std::vector<std::string>;
constexpr size_t kTokens = 12;  // of each prompt, where a test does not say
const Flags kTwelve = {"--max-tokens", "12"};
const Flags kSampling = {
    "--temperature",        "0.8", "--top-p", "0.9", "--top-k", "50", "--seed", "11",
    "--repetition-penalty", "1.1"};

Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// What one rank says, in chunks of the default 512; made once for each kind of run.
const Output& greedy_reference() {
  static const Output made = run_layout(one_rank(), seven_prompts(), kTwelve);
  return made;
}
const Output& sampled_reference() {
  static const Output made = run_layout(one_rank(), seven_prompts(), kTwelve + kSampling);
  return made;
}

class Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Layouts, OnePrompt) {
  const Output alone = run_layout(GetParam(), first_prompt(), kTwelve);
  ASSERT_EQ(alone.ids.size(), 1u);
  ASSERT_EQ(greedy_reference().ids.size(), 7u);
  EXPECT_EQ(alone.ids[0], greedy_reference().ids[0]);
  EXPECT_TRUE(alone.logits[0] == greedy_reference().logits[0]) << "logits differ in some bit";
}

// Batches of one and of seven, whole and chunked prefill: one reference for all of them.
TEST_P(Layouts, SevenPromptsWhole) {
  expect_same(run_layout(GetParam(), seven_prompts(), kTwelve + Flags{"--prefill-chunk", "2048"}),
              greedy_reference());
}

TEST_P(Layouts, SevenPromptsInSmallChunks) {
  const Flags chunked = {"--prefill-chunk", "37", "--max-batch-tokens", "90"};
  expect_same(run_layout(GetParam(), seven_prompts(), kTwelve + chunked), greedy_reference());
}

TEST_P(Layouts, SampledWithPenaltyAndSeed) {
  expect_same(run_layout(GetParam(), seven_prompts(),
                         kTwelve + kSampling + Flags{"--prefill-chunk", "500"}),
              sampled_reference());
}

INSTANTIATE_TEST_SUITE_P(Demo, Layouts,
                         testing::Values(Layout{"tp2", 2, {"--tp", "2"}},
                                         Layout{"tp4", 4, {"--tp", "4"}},
                                         Layout{"pp2", 2, {"--pp", "2"}},
                                         Layout{"pp3_uneven", 3, {"--layout", "3x1,2x1,1x1"}},
                                         Layout{"tp2_pp2", 4, {"--tp", "2", "--pp", "2"}},
                                         Layout{"l4x2_2x1", 3, {"--layout", "4x2,2x1"}},
                                         Layout{"l2x1_4x4", 5, {"--layout", "2x1,4x4"}},
                                         Layout{"two_threads", 1, {"--threads", "2"}}),
                         [](const auto& given) { return given.param.name; });

TEST(LayoutsAlone, TheReferencesAreComplete) {
  expect_complete(greedy_reference(), 7, kTokens);
  expect_complete(sampled_reference(), 7, kTokens);
  if (HasFatalFailure()) return;
  EXPECT_GE(greedy_reference().n_prompt[kLongest], kLongestTokens);
  EXPECT_NE(greedy_reference().ids, sampled_reference().ids);
}

// A batch does not change a sequence: each of the seven alone gives what it gave among the others.
TEST(LayoutsAlone, EachPromptAloneGivesTheSame) {
  const Output& together = greedy_reference();
  ASSERT_EQ(together.ids.size(), 7u);
  for (size_t i = 0; i < 7; ++i) {
    SCOPED_TRACE(testing::Message() << "prompt " << i);
    const Output alone = run_layout(one_rank(), {seven_prompts()[i]}, kTwelve);
    ASSERT_EQ(alone.ids.size(), 1u);
    EXPECT_EQ(alone.ids[0], together.ids[i]);
    EXPECT_TRUE(alone.logits[0] == together.logits[i]) << "logits differ in some bit";
  }
}

// Five KV blocks for sequences that start in one block each and end in three: some give way, and
// are computed again from their prompts and what they had said so far.
TEST(LayoutsAlone, PreemptionChangesNothing) {
  std::vector<json> prompts;
  for (size_t n : {60, 61, 63, 64}) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(300 + (i * n) % 1500));
    prompts.push_back({{"prompt_token_ids", ids}});
  }
  const Flags asked = kSampling + Flags{"--max-tokens", "80", "--context", "192"};
  const Output roomy = run_layout(one_rank(), prompts, asked);
  expect_complete(roomy, 4, 80);
  EXPECT_EQ(roomy.log.find("gave way"), std::string::npos) << roomy.log;
  for (const Layout& layout : {one_rank(), Layout{"l4x2_2x1", 3, {"--layout", "4x2,2x1"}}}) {
    SCOPED_TRACE(layout.name);
    const Output tight = run_layout(layout, prompts, asked + Flags{"--kv-blocks", "5"});
    EXPECT_NE(tight.log.find("gave way"), std::string::npos) << tight.log;
    expect_same(tight, roomy);
  }
}

}  // namespace
}  // namespace weft::test
