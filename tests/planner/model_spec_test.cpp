// Facts of the models we ship, their rules, their hash and their YAML.
#include "planner/model_spec.h"

#include <filesystem>
#include <random>

#include "runtime/base/file.h"
#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

struct Published {
  const char* file;
  size_t n_parameters;  // the sum over the tensors of the published checkpoint
};
constexpr Published kPublished[] = {
    {"deepseek-coder-33b", 33'342'991'360}, {"deepseek-coder-6.7b", 6'740'512'768},
    {"deepseek-coder-1.3b", 1'346'471'936}, {"llama-3.1-8b", 8'030'261'248},
    {"llama-3.1-70b", 70'553'706'496},      {"qwen2.5-coder-32b", 32'763'876'352},
    {"qwen3-32b", 32'762'123'264},          {"mixtral-8x7b", 46'702'792'704},
    {"qwen3-30b-a3b", 30'532'122'624},      {"qwen3-235b-a22b", 235'093'634'560},
};

TEST(ModelSpec, CountsThePublishedParameters) {
  for (const Published& published : kPublished)
    EXPECT_EQ(n_parameters(model(published.file)), published.n_parameters) << published.file;
}

TEST(ModelSpec, EveryShippedFileParsesAndReadsBack) {
  size_t n_files = 0;
  const std::string folder = std::string(WEFT_SOURCE_DIR) + "/configs/models";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ++n_files;
    const ModelSpec spec = read_model_yaml(entry.path());
    EXPECT_EQ(spec.name, entry.path().stem().string());
    EXPECT_EQ(parse_model_yaml(to_yaml(spec), "again"), spec);
  }
  EXPECT_GE(n_files, std::size(kPublished));
}

TEST(ModelSpec, HasTheFactsThatChangeTheMathematics) {
  const ModelSpec coder = model("deepseek-coder-33b");
  EXPECT_EQ(coder.rope.scaling, RopeScaling::linear);
  EXPECT_EQ(coder.rope.factor, 4.0);
  EXPECT_EQ(coder.rope.theta, 1e5);
  EXPECT_EQ(coder.norm_eps, 1e-6);
  const size_t kv_bytes = coder.n_layers * 2 * coder.n_kv_heads * coder.head_dim * 2;
  EXPECT_EQ(kv_bytes, 253'952u);  // of a token, in bf16
  const ModelSpec llama = model("llama-3.1-70b");
  EXPECT_EQ(llama.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama.rope.factor, 8.0);
  EXPECT_EQ(llama.rope.original_context, 8192u);
  EXPECT_EQ(llama.norm_eps, 1e-5);
  EXPECT_TRUE(model("qwen2.5-coder-32b").qkv_bias);
  EXPECT_TRUE(model("qwen3-32b").qk_norm);
  EXPECT_EQ(model("mixtral-8x7b").experts_per_token, 2u);
}

TEST(ModelSpec, CountsATiedHeadOnceAndEveryBias) {
  ModelSpec spec = small_spec();
  const size_t plain = n_parameters(spec);
  spec.tied_embeddings = true;
  EXPECT_EQ(plain - n_parameters(spec), spec.vocab * spec.hidden);
  spec.tied_embeddings = false;
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = spec.qk_norm = true;
  const size_t biases = (8 + 2 + 2) * 32 + 256 + (2 * 344 + 256) + 2 * 32;
  EXPECT_EQ(n_parameters(spec) - plain, 6 * biases);
}

TEST(ModelSpec, HashIsOfTheFactsWithoutTheName) {
  const ModelSpec spec = small_spec();
  ModelSpec other = spec;
  other.name = "another";
  EXPECT_EQ(facts_sha256(spec), facts_sha256(other));
  other.rope.factor = 1.5;
  EXPECT_NE(facts_sha256(spec), facts_sha256(other));
  EXPECT_EQ(facts_sha256(spec).size(), 64u);
  // Fixed: plans that users keep name the facts by it.
  EXPECT_EQ(facts_sha256(spec), "d3dbb6da6222643973a4b8420184302e4eff07124d0ff5b6bf9f04f7caaa5d2f");
}

TEST(ModelSpec, EveryBrokenRuleIsSaid) {
  EXPECT_TRUE(problems(small_spec()).empty());
  ModelSpec spec = small_spec();
  spec.n_heads = 7;
  spec.head_dim = 31;
  spec.vocab = 0;
  spec.norm_eps = 0;
  spec.rope.theta = -1;
  spec.experts_per_token = 2;
  spec.dtype = DType::i32;
  const std::vector<std::string> found = problems(spec);
  ASSERT_EQ(found.size(), 7u) << fmt::format("{}", fmt::join(found, "\n"));
  const std::string all = fmt::format("{}", fmt::join(found, "\n"));
  EXPECT_SAYS(all, "n_heads 7 is no multiple of n_kv_heads 2");
  EXPECT_SAYS(all, "head_dim 31 is odd");
  EXPECT_SAYS(all, "vocab 0 is not from 1 to");
  EXPECT_SAYS(all, "norm_eps 0 is not");
  EXPECT_SAYS(all, "rope.theta -1 is not");
  EXPECT_SAYS(all, "experts_per_token 2 in a model without n_experts");
  EXPECT_SAYS(all, "dtype i32 is none of bf16, f16, f32");
}

TEST(ModelSpec, ScalingsNeedTheirContextAndOrder) {
  ModelSpec spec = small_spec();
  spec.rope.scaling = RopeScaling::yarn;
  EXPECT_SAYS(problems(spec).at(0), "rope.original_context 0");
  spec.rope.scaling = RopeScaling::llama3;
  spec.rope.original_context = 512;
  spec.rope.low_freq_factor = 4;
  EXPECT_SAYS(problems(spec).at(0), "rope.low_freq_factor 4 is not below high_freq_factor 4");
}

TEST(ModelSpec, SizesThatWouldOverflowAreRefused) {
  ModelSpec spec = small_spec();
  spec.n_layers = 100'000;
  spec.hidden = spec.ffn = size_t{1} << 24;
  ASSERT_EQ(problems(spec).size(), 1u);
  EXPECT_SAYS(problems(spec)[0], "parameters; at most 1e+14 are planned");
}

class BadModelYaml : public ::testing::Test {
 protected:
  // The error of small_spec's file with one text replaced.
  std::string error_with(const std::string& from, const std::string& to) {
    std::string text = to_yaml(small_spec());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " is not in\n" << text;
    text.replace(at, from.size(), to);
    return error_of([&] { parse_model_yaml(text, "m.yaml"); });
  }
};

TEST_F(BadModelYaml, SaysWhatAndWhere) {
  EXPECT_EQ(error_with("n_layers", "n_laeyrs"),
            "m.yaml:4:1: unknown key \"n_laeyrs\" (did you mean \"n_layers\"?)");
  EXPECT_EQ(error_with("  theta", "  thta"),
            "m.yaml:13:3: unknown key \"thta\" in rope (did you mean \"theta\"?)");
  EXPECT_EQ(error_with("hidden: 256\n", ""), "m.yaml:1:1: key \"hidden\" is missing");
  EXPECT_EQ(error_with("hidden: 256", "hidden: wide"),
            "m.yaml:5:9: hidden: \"wide\" is not a whole number from 0 to 1099511627776");
  EXPECT_EQ(error_with("hidden: 256", "hidden: [256]"),
            "m.yaml:5:9: hidden: must be a single value, not a list");
  EXPECT_EQ(error_with("version: 1", "version: 2"),
            "m.yaml:1:10: version: 2 is not read; this weft reads 1");
  EXPECT_EQ(error_with("n_heads: 8", "n_heads: 7"),
            "m.yaml:6:10: n_heads: n_heads 7 is no multiple of n_kv_heads 2");
  EXPECT_SAYS(error_with("bf16", "bf61"), "is none of bf16, f16, f32 (did you mean \"bf16\"?)");
  EXPECT_SAYS(error_with("10000", "0"),
              "m.yaml:13:3: rope: rope.theta 0 is not a finite number above 0");
}

TEST(ModelYaml, AMissingFileIsNamed) {
  EXPECT_SAYS(error_of([] { read_model_yaml("no/such.yaml"); }), "no/such.yaml: No such file");
}

TEST(ModelYaml, RandomFactsReadBackExactly) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % sizeof...(values)];
  };
  for (int i = 0; i < 300; ++i) {
    ModelSpec spec = small_spec();
    spec.name = one_of("a", "with space", "7", "null", "x:y#z", "漢字");
    spec.n_layers = 1 + random() % 200;
    spec.rope.theta = std::uniform_real_distribution<>(1, 1e7)(random);
    spec.rope.scaling = static_cast<RopeScaling>(random() % 4);
    spec.rope.factor = std::uniform_real_distribution<>(1, 64)(random);
    spec.rope.original_context = 1 + random() % 100'000;
    spec.rope.truncate = random() % 2 == 0;
    spec.norm_eps = std::uniform_real_distribution<>(1e-9, 1e-3)(random);
    spec.tied_embeddings = random() % 2 == 0;
    spec.qkv_bias = random() % 2 == 0;
    spec.sliding_window = random() % 3 == 0 ? 1 + random() % 4096 : 0;
    spec.dtype = one_of(DType::bf16, DType::f16, DType::f32);
    const ModelSpec again = parse_model_yaml(to_yaml(spec), "again");
    ASSERT_EQ(again, spec) << to_yaml(spec);
    ASSERT_EQ(facts_sha256(again), facts_sha256(spec));
  }
}

}  // namespace
}  // namespace weft::planner
