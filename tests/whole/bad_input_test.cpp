// What a user can get wrong, as a user meets it: a clear line on stderr, a status that is not zero,
// no hang, nothing written.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/gpu_devices.h"
#include "runtime/base/file.h"
#include "tests/support/command.h"

namespace weft::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kDemo = WEFT_SOURCE_DIR "/configs/models/demo";
constexpr int kSeconds = 30;

void expect_refused(const CommandResult& result, const std::vector<std::string>& words,
                    int status = 2) {
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  for (const std::string& word : words)
    EXPECT_NE(result.err.find(word), std::string::npos)
        << "no \"" << word << "\" in: " << result.err;
}

size_t n_times(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

std::vector<std::string> run_demo(const std::vector<std::string>& more) {
  std::vector<std::string> all = {"run", "--model", kDemo, "--prompt", "x", "--max-tokens", "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Backend, IsNamedWhereItIsNone) {
  expect_refused(run_weft(1, run_demo({"--backend", "cdua"}), kSeconds),
                 {"--backend", "cdua", "auto, cpu, cuda", "did you mean \"cuda\""});
}

TEST(Backend, SaysWhyThereIsNoGpu) {
  const kernels::GpuQuery query = kernels::list_gpus();
  if (!query.gpus.empty()) GTEST_SKIP() << "there is a GPU: " << query.gpus.front().name;
  for (const int n_ranks : {1, 2})
    expect_refused(run_weft(n_ranks, run_demo({"--backend", "cuda"}), kSeconds),
                   {"--backend cuda", query.why_none});
}

TEST(Backend, RefusesToMeasureStepsWithoutGpus) {
  if (!kernels::list_gpus().gpus.empty()) GTEST_SKIP() << "there is a GPU";
  expect_refused(run_weft(1, {"bench", "step", "--model", kDemo, "--batch", "1"}, kSeconds),
                 {"bench step", "GPU"});
}

// A copy of the demo model that a test may damage.
class Copied : public testing::Test {
 protected:
  Copied() { fs::copy(kDemo, folder_ / "model"); }
  std::string file(const std::string& name) const { return folder_ / ("model/" + name); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }
  json config() const { return json::parse(read_text(file("config.json"), 1 << 20)); }
  CommandResult run(int n_ranks = 1, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"run",          "--model", folder_ / "model", "--prompt", "x",
                                    "--max-tokens", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return run_weft(n_ranks, all, kSeconds);
  }
  CommandResult check() const {
    return run_weft(1, {"check", "--model", folder_ / "model"}, kSeconds);
  }

  TemporaryFolder folder_;
};

TEST(BadLayout, WorldOfAnotherSizeThanTheLayout) {
  const CommandResult result = run_weft(2, run_demo({"--layout", "4x2,2x2"}), kSeconds);
  expect_refused(result, {"4x2,2x2", "4", "2", "mpirun -n 4"});
  EXPECT_EQ(n_times(result.err, "mpirun -n 4"), 1u) << result.err;
}

TEST(BadLayout, WorldOfAnotherSizeThanThePlan) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_weft(1, {"plan", "--model", kDemo, "--layout", "4x2,2x2", "-o", folder / "p.yaml"})
                .status,
            0);
  expect_refused(run_weft(3, run_demo({"--plan", folder / "p.yaml"}), kSeconds),
                 {"4x2,2x2", "mpirun -n 4"});
}

TEST(BadLayout, LayersMissingOrTooMany) {
  expect_refused(run_weft(2, run_demo({"--layout", "4x1,1x1"}), kSeconds), {"5", "6", "layers"});
  expect_refused(run_weft(2, run_demo({"--layout", "4x1,3x1"}), kSeconds), {"7", "6", "layers"});
  const CommandResult plan = run_weft(1, {"plan", "--model", kDemo, "--layout", "4x1,1x1"});
  expect_refused(plan, {"5", "6", "layers"});
}

// Edited by hand: layer 3 twice, layer 5 nowhere.
TEST(BadLayout, PlanWithADoubledLayer) {
  const TemporaryFolder folder;
  const std::string path = folder / "p.yaml";
  ASSERT_EQ(run_weft(1, {"plan", "--model", kDemo, "--layout", "4x1,2x1", "-o", path}).status, 0);
  std::string yaml = read_text(path, 1 << 20);
  const size_t at = yaml.find("[4, 6]");
  ASSERT_NE(at, std::string::npos);
  yaml.replace(at, 6, "[3, 5]");
  std::ofstream(path) << yaml;
  expect_refused(run_weft(2, run_demo({"--plan", path}), kSeconds), {"layer"});
  const CommandResult check = run_weft(1, {"check", "--model", kDemo, "--plan", path}, kSeconds);
  EXPECT_EQ(check.status, 2);
  EXPECT_NE(check.err.find("layer"), std::string::npos) << check.err;
}

TEST(BadLayout, TensorParallelismThatCantBe) {
  const CommandResult result =
      run_weft(1, {"plan", "--model", WEFT_SOURCE_DIR "/configs/models/deepseek-coder-33b.yaml",
                   "--layout", "62x7", "--gpu-memory-gib", "80"});
  expect_refused(result,
                 {"TP 7: 8 KV heads are neither divided by it nor divide it; legal: 1 2 4 8 56"});
  expect_refused(run_weft(3, run_demo({"--tp", "3"}), kSeconds), {"TP 3", "legal: 1 2 4 8"});
}

TEST(BadLayout, LayoutFlagsExcludeEachOther) {
  expect_refused(run_weft(1, run_demo({"--layout", "6x1", "--tp", "1"}), kSeconds), {"--layout"});
  expect_refused(run_weft(1, run_demo({"--plan", "p.yaml", "--pp", "1"}), kSeconds), {"--p"});
}

TEST(BadFlags, UnknownFlagNamesTheNearest) {
  expect_refused(run_weft(1, run_demo({"--laoyut", "6x1"}), kSeconds),
                 {"--laoyut", "did you mean \"--layout\""});
  expect_refused(run_weft(1, {"rnu"}), {"rnu", "run"});
  const CommandResult many = run_weft(3, run_demo({"--max-tokns", "3"}), kSeconds);
  expect_refused(many, {"--max-tokens"});
  EXPECT_EQ(n_times(many.err, "did you mean"), 1u) << "said once, by rank 0:\n" << many.err;
}

// What is missing for want of the misspelt flag is not what is wrong.
TEST(BadFlags, UnknownFlagComesBeforeAMissingOne) {
  expect_refused(run_weft(1, {"run", "--model", kDemo, "--promt", "a"}),
                 {"did you mean \"--prompt\""});
  expect_refused(run_weft(1, {"plan", "--modle", kDemo}), {"--modle", "--model"});
  expect_refused(run_weft(1, {"synth", "--model", kDemo, "--otput", "x"}), {"--otput", "--output"});
  expect_refused(run_weft(1, {"synth", "--model", kDemo}), {"--output"});
}

TEST(BadFlags, ValuesOutOfRange) {
  const TemporaryFolder folder;
  for (const char* seed : {"-5", "18446744073709551616"})
    expect_refused(run_weft(1, {"synth", "--model", kDemo, "-o", folder / "s", "--seed", seed}),
                   {"--seed", seed});
  expect_refused(run_weft(1, run_demo({"--temperature", "-1"})), {"temperature", "-1"});
  expect_refused(run_weft(1, run_demo({"--top-p", "0"})), {"top-p", "0"});
  expect_refused(run_weft(1, run_demo({"--top-p", "nan"})), {"top-p"});
  expect_refused(run_weft(1, run_demo({"--repetition-penalty", "0"})), {"repetition"});
  expect_refused(run_weft(1, run_demo({"--weights", "synthetic:x"})), {"x"});
  expect_refused(run_weft(1, run_demo({"--weights", "sythetic:1"})), {"sythetic:1"});
  expect_refused(run_weft(1, run_demo({"--stop", ""})), {"stop"});
  expect_refused(run_weft(1, run_demo({"--dtype", "fp16"})), {"fp16", "f16"});
  expect_refused(run_weft(1, run_demo({"--json", "--logprobs", "101"})), {"101", "100"});
}

TEST(BadPrompts, LongerThanTheContext) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "x = 1\n";
  const TemporaryFolder folder;
  std::ofstream(folder / "long.txt") << text;
  const CommandResult result =
      run_weft(2, {"run", "--model", kDemo, "--prompt-file", folder / "long.txt"}, kSeconds);
  expect_refused(result, {"prompt 0", "tokens", "2048"});
}

TEST(BadPrompts, LinesThatCantBeRead) {
  const TemporaryFolder folder;
  std::ofstream(folder / "p.jsonl") << "{\"prompt\": \"x\"}\n{\"promt\": \"x\"}\n{oops\n"
                                    << "{\"prompt_token_ids\": [99999]}\n{\"prompt\": 3}\n";
  expect_refused(run_weft(1, {"run", "--model", kDemo, "--prompts", folder / "p.jsonl"}),
                 {"p.jsonl:2", "did you mean \"prompt\"", "p.jsonl:3", "p.jsonl:5"});
  std::ofstream(folder / "q.jsonl") << "{\"prompt_token_ids\": [99999]}\n";
  expect_refused(run_weft(1, {"run", "--model", kDemo, "--prompts", folder / "q.jsonl"}),
                 {"99999", "2048"});
  expect_refused(run_weft(1, {"run", "--model", kDemo, "--prompts", folder / "none.jsonl"}),
                 {"none.jsonl"});
  std::ofstream(folder / "r.jsonl") << "{\"prompt\": \"x\", \"seed\": 1, \"seed\": 2}\n"
                                    << "[[[[[[1]]]]]]\n{\"prompt\": \"x\", \"max_tokens\": 2.5}\n";
  expect_refused(run_weft(1, {"run", "--model", kDemo, "--prompts", folder / "r.jsonl"}),
                 {"r.jsonl:1", "seed", "r.jsonl:2", "r.jsonl:3", "2.5"});
}

// Fewer tokens than asked for, but never without a word.
TEST(BadPrompts, CutByKvBlocksIsSaid) {
  const CommandResult result = run_weft(1,
                                        {"run", "--model", kDemo, "--prompt", "x", "--max-tokens",
                                         "100", "--ignore-eos", "--kv-blocks", "1", "--json"},
                                        kSeconds);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("of 100 asked for"), std::string::npos) << result.err;
  const json line = json::parse(result.out);
  EXPECT_EQ(line["prompt_tokens"].get<int>() + line["completion_tokens"].get<int>(), 64);
}

TEST_F(Copied, TruncatedCheckpoint) {
  fs::resize_file(file("model.safetensors"), 3'000'000);
  expect_refused(run(2, {"--tp", "2"}), {"model.safetensors"});
  expect_refused(run(), {"model.safetensors"});
}

TEST_F(Copied, HeaderLongerThanTheFile) {
  std::string bytes = read_text(file("model.safetensors"), 1 << 24);
  bytes[2] = '\x7f';
  write("model.safetensors", bytes);
  expect_refused(run(), {"model.safetensors", "header"});
}

TEST_F(Copied, MissingShard) {
  fs::rename(file("model.safetensors"), file("model-00001-of-00002.safetensors"));
  json index = {{"metadata", json::object()}, {"weight_map", json::object()}};
  index["weight_map"]["model.norm.weight"] = "model-00002-of-00002.safetensors";
  write("model.safetensors.index.json", index.dump());
  expect_refused(run(), {"model-00002-of-00002.safetensors"});
}

TEST_F(Copied, TensorOfTheWrongShape) {
  json changed = config();
  changed["intermediate_size"] = 400;
  write("config.json", changed.dump());
  expect_refused(run(), {"mlp", "400", "344"});
}

TEST_F(Copied, InvalidJson) {
  write("config.json", "{\"architectures\": [\"LlamaForCausalLM\"");
  expect_refused(run(3, {"--layout", "4x2,2x1"}), {"config.json"});
}

TEST_F(Copied, ArchitectureThatWeftDoesNotHave) {
  json changed = config();
  changed["architectures"] = {"GPT2LMHeadModel"};
  write("config.json", changed.dump());
  expect_refused(run(), {"GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM"});
}

TEST_F(Copied, TokenizerThatIsNotBpe) {
  json tokenizer = json::parse(read_text(file("tokenizer.json"), 1 << 24));
  tokenizer["model"]["type"] = "WordPiece";
  write("tokenizer.json", tokenizer.dump());
  expect_refused(run(2, {"--pp", "2"}), {"tokenizer.json", "WordPiece", "BPE"});
}

TEST_F(Copied, InvalidYaml) {
  std::ofstream(folder_ / "plan.yaml") << "version: 1\nmodel: {name: [unclosed\n";
  expect_refused(run(1, {"--plan", folder_ / "plan.yaml"}), {"plan.yaml:"});
  std::ofstream(folder_ / "key.yaml") << "version: 1\nmodle: {name: x}\n";
  expect_refused(run(1, {"--plan", folder_ / "key.yaml"}), {"modle", "did you mean \"model\""});
}

// All that is wrong in one go.
TEST_F(Copied, CheckListsEverything) {
  json changed = config();
  changed["intermediate_size"] = 400;
  write("config.json", changed.dump());
  json tokenizer = json::parse(read_text(file("tokenizer.json"), 1 << 24));
  tokenizer["model"]["type"] = "Unigram";
  write("tokenizer.json", tokenizer.dump());
  write("generation_config.json", "[]");
  std::ofstream(folder_ / "plan.yaml") << "version: 2\n";
  const CommandResult result = run_weft(
      1, {"check", "--model", folder_ / "model", "--plan", folder_ / "plan.yaml"}, kSeconds);
  EXPECT_EQ(result.status, 2);
  for (const char* word : {"400", "Unigram", "generation_config.json", "plan.yaml", "4 problems"})
    EXPECT_NE(result.err.find(word), std::string::npos) << word << " in " << result.err;
}

TEST_F(Copied, CheckOfAGoodModelFindsNothing) {
  const CommandResult result = check();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("no problems found"), std::string::npos) << result.out;
}

TEST_F(Copied, CheckAsJsonHoldsWhatIsWrong) {
  const std::vector<std::string> asked = {"check", "--model", folder_ / "model", "--json"};
  const CommandResult good = run_weft(1, asked, kSeconds);
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(json::parse(good.out)["model"]["dtype"], "bf16");
  EXPECT_TRUE(json::parse(good.out)["problems"].empty());
  fs::resize_file(file("model.safetensors"), 3'000'000);
  const CommandResult bad = run_weft(1, asked, kSeconds);
  EXPECT_EQ(bad.status, 2);
  ASSERT_EQ(json::parse(bad.out)["problems"].size(), 1u) << bad.out;
  EXPECT_NE(json::parse(bad.out)["problems"][0].get<std::string>().find("model.safetensors"),
            std::string::npos);
}

// Never met in what the model writes, so it would run to the end of the context in silence.
TEST_F(Copied, EndOfSequenceBeyondTheVocabulary) {
  json generation = json::parse(read_text(file("generation_config.json"), 1 << 20));
  generation["eos_token_id"] = 70000;
  write("generation_config.json", generation.dump());
  const CommandResult result = run();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("70000"), std::string::npos) << result.err;
}

// Every weight of the final norm NaN: said with the cause, by one rank, and the job ends.
TEST_F(Copied, WeightsThatAreNaN) {
  std::string bytes = read_text(file("model.safetensors"), 1 << 24);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const json tensors = json::parse(bytes.substr(sizeof(header), header));
  const json& place = tensors["model.norm.weight"]["data_offsets"];
  for (size_t at = place[0]; at < place[1]; ++at) bytes[sizeof(header) + header + at] = '\xff';
  write("model.safetensors", bytes);
  const CommandResult result = run(2, {"--pp", "2"});
  expect_refused(result, {"nan", "--dtype"}, 1);
}

// A stale copy on one host: same facts, same shapes, other values.
TEST_F(Copied, OtherWeightsOnOneRank) {
  ASSERT_EQ(run_weft(1, {"synth", "--model", kDemo, "-o", folder_ / "other"}).status, 0);
  fs::copy(file("tokenizer.json"), folder_ / "other/tokenizer.json",
           fs::copy_options::overwrite_existing);
  const std::string script = "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then M=" + (folder_ / "other") +
                             "; else M=" + (folder_ / "model") +
                             "; fi; exec " WEFT_BINARY " run --model $M --prompt x --pp 2";
  const CommandResult result =
      run_command({"mpirun", "--oversubscribe", "-n", "2", "bash", "-c", script}, kSeconds);
  expect_refused(result, {"rank 1", "other weights"});
}

// One rank cannot read the folder: it is named, all end, nobody hangs.
TEST_F(Copied, FolderUnreadableOnOneRankOnly) {
  const std::string script = "if [ \"$OMPI_COMM_WORLD_RANK\" = 2 ]; then M=" + (folder_ / "gone") +
                             "; else M=" + (folder_ / "model") +
                             "; fi; exec " WEFT_BINARY " run --model $M --prompt x --pp 3";
  const CommandResult result =
      run_command({"mpirun", "--oversubscribe", "-n", "3", "bash", "-c", script}, kSeconds);
  expect_refused(result, {"rank 2", "gone"});
  EXPECT_EQ(n_times(result.err, "weft: rank 2"), 1u) << result.err;
}

// Nothing is left of a plan that was refused.
TEST(BadOutput, NothingIsWritten) {
  const TemporaryFolder folder;
  run_weft(1, {"plan", "--model", kDemo, "--layout", "7x1", "-o", folder / "p.yaml"});
  run_weft(1, run_demo({"--layout", "7x1", "--logits", folder / "l", "--dump-plan", folder / "d"}));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// Found before anything runs, and a device is not replaced by a file.
TEST(BadOutput, ThatCantBeWritten) {
  const TemporaryFolder folder;
  expect_refused(run_weft(1, run_demo({"--logits", folder / "none/l"}), kSeconds), {"none/l"});
  expect_refused(run_weft(1, run_demo({"--dump-plan", folder.path()}), kSeconds),
                 {"is no regular file"});
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  expect_refused(run_weft(1, run_demo({"--logits", folder / "fifo"}), kSeconds),
                 {"is no regular file"});
  EXPECT_FALSE(fs::is_regular_file(folder / "fifo"));
}

TEST(BadOutput, NoPlanIsLeftOfARunThatWasRefused) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "x = 1\n";
  expect_refused(
      run_weft(1, {"run", "--model", kDemo, "--prompt", text, "--dump-plan", folder / "d"}),
      {"prompt 0"});
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(BadOutput, StreamShowsOnePrompt) {
  const TemporaryFolder folder;
  std::ofstream(folder / "p.jsonl") << "{\"prompt\": \"x\"}\n{\"prompt\": \"y\"}\n";
  expect_refused(
      run_weft(1, {"run", "--model", kDemo, "--prompts", folder / "p.jsonl", "--stream"}),
      {"--stream"});
  expect_refused(run_weft(1, run_demo({"--stream", "--json"})), {"--stream"});
  expect_refused(run_weft(1, run_demo({"--logprobs", "2"})), {"--json"});
}

// A fifo that nobody writes would be waited for without end.
TEST(BadPrompts, FifoInPlaceOfAFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  expect_refused(run_weft(1, run_demo({"--plan", folder / "fifo"}), kSeconds), {"regular file"});
}

TEST(BadOutput, TwoIntoOneFile) {
  const TemporaryFolder folder;
  expect_refused(
      run_weft(1, run_demo({"--logits", folder / "f", "--dump-plan", folder.path() + "/./f"})),
      {"both write"});
}

// A batch's results are one message, and MPI counts its bytes in an int.
TEST(BadOutput, LogitsOfTooManySequences) {
  const TemporaryFolder folder;
  const CommandResult result =
      run_weft(1, run_demo({"--logits", folder / "l", "--max-sequences", "300000"}), kSeconds);
  expect_refused(result, {"300000 sequences", "--max-sequences 26"});
}

TEST(BadOutput, SynthAsJson) {
  const TemporaryFolder folder;
  const CommandResult result =
      run_weft(1, {"synth", "--model", kDemo, "-o", folder / "s", "--json"}, kSeconds);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["folder"], folder / "s");
  EXPECT_GT(json::parse(result.out)["weights_bytes"].get<size_t>(), 1'000'000u);
}

// Everything in one go: layout, output and weights.
TEST(BadFlags, ManyMistakesAreSaidTogether) {
  const CommandResult result =
      run_weft(1, run_demo({"--layout", "7x1", "--logits", "/none/l", "--weights", "synthetic:x"}),
               kSeconds);
  expect_refused(result, {"3 problems", "7", "/none/l", "seed"});
}

}  // namespace
}  // namespace weft::test
