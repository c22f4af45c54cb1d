// The same tokens and the same bits of logits from every layout, batch and chunking, as a user
// would run them: under mpirun, on the demo model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/file.h"
#include "tests/support/command.h"

namespace weft::test {
namespace {

using nlohmann::json;

struct Layout {
  std::string name;
  int n_ranks;
  std::vector<std::string> flags;
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// Seven prompts of different lengths; the longest spans several chunks of the chunked runs, and
// together they exceed one batch.
std::string prompt_lines(size_t n) {
  std::string longest = "def parse(lines):\n";
  for (int i = 0; i < 40; ++i) longest += "    value = lines[" + std::to_string(i) + "]\n";
  const std::vector<std::string> prompts = {"def fibonacci(n):",
                                            "import os",
                                            longest,
                                            "class Stack:\n    def __init__(self):",
                                            "x",
                                            "for i in range(10):\n    print(i",
                                            "# \xe8\xaf\xbb\xe5\x8f\x96\nwith open("};
  std::string lines;
  for (size_t i = 0; i < n; ++i) lines += json{{"prompt", prompts[i]}}.dump() + "\n";
  return lines;
}

struct Output {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> texts;
  std::string logits;  // the file's bytes
};

Output run_layout(const Layout& layout, size_t n_prompts, const std::vector<std::string>& more) {
  const TemporaryFolder folder;
  write_file(folder / "prompts.jsonl", prompt_lines(n_prompts));
  std::vector<std::string> arguments = {"run",
                                        "--model",
                                        WEFT_SOURCE_DIR "/configs/models/demo",
                                        "--prompts",
                                        folder / "prompts.jsonl",
                                        "--json",
                                        "--logits",
                                        folder / "logits.safetensors",
                                        "--max-tokens",
                                        "12",
                                        "--ignore-eos"};
  arguments.insert(arguments.end(), layout.flags.begin(), layout.flags.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  const CommandResult result = run_weft(layout.n_ranks, arguments);
  EXPECT_FALSE(result.timed_out) << result.err;
  EXPECT_EQ(result.status, 0) << result.err;
  Output output;
  if (result.status != 0) return output;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    output.ids.push_back(object["token_ids"].get<std::vector<int32_t>>());
    output.texts.push_back(object["text"]);
  }
  output.logits = read_text(folder / "logits.safetensors", size_t{1} << 28);
  return output;
}

const Layout& one_rank() {
  static const Layout layout{"one_rank", 1, {"--threads", "1"}};
  return layout;
}

class Layouts : public testing::TestWithParam<Layout> {
 protected:
  // What one rank says, for each kind of run; made once.
  static const Output& reference(size_t n_prompts, const std::vector<std::string>& more) {
    static std::map<std::string, Output> made;
    std::string key = std::to_string(n_prompts);
    for (const std::string& word : more) key += " " + word;
    if (!made.contains(key)) made[key] = run_layout(one_rank(), n_prompts, more);
    return made[key];
  }

  void expect_same(const Output& a, const Output& b) {
    ASSERT_FALSE(b.ids.empty());
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.texts, b.texts);
    EXPECT_EQ(a.logits.size(), b.logits.size());
    EXPECT_TRUE(a.logits == b.logits) << "logits differ in some bit";
  }
};

TEST_P(Layouts, OnePrompt) { expect_same(run_layout(GetParam(), 1, {}), reference(1, {})); }

// Batches of one and of seven, whole and chunked prefill: one reference for all of them.
TEST_P(Layouts, SevenPromptsWhole) {
  expect_same(run_layout(GetParam(), 7, {"--prefill-chunk", "2048"}), reference(7, {}));
}

TEST_P(Layouts, SevenPromptsInSmallChunks) {
  const std::vector<std::string> chunked = {"--prefill-chunk", "37", "--max-batch-tokens", "90"};
  expect_same(run_layout(GetParam(), 7, chunked), reference(7, {}));
}

TEST_P(Layouts, SampledWithPenaltyAndSeed) {
  const std::vector<std::string> sampled = {
      "--temperature",        "0.8", "--top-p", "0.9", "--top-k", "50", "--seed", "11",
      "--repetition-penalty", "1.1"};
  expect_same(run_layout(GetParam(), 7, sampled), reference(7, sampled));
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

// A batch does not change a sequence: each of the seven alone gives what it gave among the others.
TEST(LayoutsAlone, EachPromptAloneGivesTheSame) {
  const Output together = run_layout(one_rank(), 7, {});
  ASSERT_EQ(together.ids.size(), 7u);
  const Output alone = run_layout(one_rank(), 1, {});
  ASSERT_EQ(alone.ids.size(), 1u);
  EXPECT_EQ(alone.ids[0], together.ids[0]);
}

// Few KV blocks: sequences give way and are recomputed, and nothing changes.
TEST(LayoutsAlone, PreemptionChangesNothing) {
  const Output together = run_layout(one_rank(), 7, {});
  const Output tight =
      run_layout(one_rank(), 7, {"--context", "640", "--kv-blocks", "11", "--prefill-chunk", "64"});
  EXPECT_EQ(tight.ids, together.ids);
  EXPECT_TRUE(tight.logits == together.logits) << "logits differ in some bit";
}

}  // namespace
}  // namespace weft::test
