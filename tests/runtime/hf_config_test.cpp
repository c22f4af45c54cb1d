// config.json of each family as its files have it, and with one thing wrong each.
#include "runtime/hf_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/hf_config_writer.h"
#include "tests/support/command.h"
#include "tests/support/error_text.h"
#include "tests/support/small_model.h"

namespace weft::runtime {
namespace {

using nlohmann::json;
using planner::ModelSpec;
using planner::RopeScaling;
using test::TemporaryFolder;

json config(const char* architecture) {
  return {{"architectures", {architecture}},
          {"num_hidden_layers", 6},
          {"hidden_size", 96},
          {"intermediate_size", 130},
          {"num_attention_heads", 12},
          {"num_key_value_heads", 4},
          {"vocab_size", 1000},
          {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-5},
          {"torch_dtype", "bfloat16"}};
}

ModelSpec parse(const json& object) { return parse_hf_config(object.dump(), "config.json"); }

json with(json object, const char* key, const json& value) {
  object[key] = value;
  return object;
}

json without(json object, const char* key) {
  object.erase(key);
  return object;
}

TEST(HfConfig, ReadsALlama) {
  json object = config("LlamaForCausalLM");
  object["rope_theta"] = 100000;
  object["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  object["tie_word_embeddings"] = true;
  object["some_new_key"] = {{"deep", {1, 2}}};
  const ModelSpec spec = parse(object);
  EXPECT_EQ(spec.architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec.n_layers, 6u);
  EXPECT_EQ(spec.hidden, 96u);
  EXPECT_EQ(spec.ffn, 130u);
  EXPECT_EQ(spec.n_heads, 12u);
  EXPECT_EQ(spec.n_kv_heads, 4u);
  EXPECT_EQ(spec.head_dim, 8u);
  EXPECT_EQ(spec.vocab, 1000u);
  EXPECT_EQ(spec.context, 4096u);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.dtype, DType::bf16);
  EXPECT_TRUE(spec.tied_embeddings);
  EXPECT_EQ(spec.rope.theta, 1e5);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::linear);
  EXPECT_EQ(spec.rope.factor, 4.0);
  EXPECT_FALSE(spec.qkv_bias || spec.o_bias || spec.ffn_bias || spec.qk_norm);
  EXPECT_EQ(spec.sliding_window, 0u);
}

TEST(HfConfig, TakesEachFamilysDefaults) {
  const auto bare = [](const char* architecture) {
    json object = config(architecture);
    for (const char* key :
         {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "torch_dtype"})
      object.erase(key);
    object["num_attention_heads"] = 32;
    object["hidden_size"] = 256;
    return parse(object);
  };
  const ModelSpec llama = bare("LlamaForCausalLM");
  EXPECT_EQ(llama.n_kv_heads, 32u);
  EXPECT_EQ(llama.context, 2048u);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rope.theta, 1e4);
  EXPECT_EQ(llama.dtype, DType::f32);
  const ModelSpec mistral = bare("MistralForCausalLM");
  EXPECT_EQ(mistral.n_kv_heads, 8u);
  EXPECT_EQ(mistral.context, 131072u);
  EXPECT_EQ(mistral.sliding_window, 4096u);
  EXPECT_EQ(mistral.full_attention_layers, 0u);
  const ModelSpec qwen2 = bare("Qwen2ForCausalLM");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  EXPECT_EQ(qwen2.head_dim, 8u);
  EXPECT_EQ(qwen2.sliding_window, 0u);
  const ModelSpec qwen3 = bare("Qwen3ForCausalLM");
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128u);
}

TEST(HfConfig, ReadsBiases) {
  json object = config("LlamaForCausalLM");
  object["attention_bias"] = true;
  object["mlp_bias"] = true;
  const ModelSpec spec = parse(object);
  EXPECT_TRUE(spec.qkv_bias && spec.o_bias && spec.ffn_bias);
}

TEST(HfConfig, NullKvHeadsMeanOneForEachHead) {
  EXPECT_EQ(parse(with(config("MistralForCausalLM"), "num_key_value_heads", nullptr)).n_kv_heads,
            12u);
}

TEST(HfConfig, ReadsMistralWindows) {
  EXPECT_EQ(parse(with(config("MistralForCausalLM"), "sliding_window", nullptr)).sliding_window,
            0u);
  EXPECT_EQ(parse(with(config("MistralForCausalLM"), "sliding_window", 100)).sliding_window, 100u);
}

TEST(HfConfig, ReadsQwenWindows) {
  json object = config("Qwen2ForCausalLM");
  object["sliding_window"] = 512;
  object["max_window_layers"] = 4;
  EXPECT_EQ(parse(object).sliding_window, 0u);
  object["use_sliding_window"] = true;
  EXPECT_EQ(parse(object).sliding_window, 512u);
  EXPECT_EQ(parse(object).full_attention_layers, 4u);
  object["max_window_layers"] = 28;
  EXPECT_EQ(parse(object).sliding_window, 0u);  // all layers see everything
}

TEST(HfConfig, ReadsLayerTypes) {
  const char *full = "full_attention", *slide = "sliding_attention";
  json object = config("Qwen3ForCausalLM");
  object["use_sliding_window"] = true;
  object["sliding_window"] = 64;
  object["layer_types"] = {full, full, slide, slide, slide, slide};
  EXPECT_EQ(parse(object).full_attention_layers, 2u);
  object["layer_types"] = {slide, slide, slide, slide, slide, slide};
  EXPECT_EQ(parse(object).full_attention_layers, 0u);
  EXPECT_EQ(parse(object).sliding_window, 64u);
  object["layer_types"] = {full, full, full, full, full, full};
  EXPECT_EQ(parse(object).sliding_window, 0u);
  for (const json& bad : {json{full, slide, full, slide, full, slide}, json{full, slide},
                          json{slide, slide, slide, slide, slide, full}, json("full_attention"),
                          json{full, full, full, full, full, "chunked_attention"}}) {
    object["layer_types"] = bad;
    EXPECT_ERROR(parse(object), "layer_types is", "must name 6 layers");
  }
  object["layer_types"] = {full, full, slide, slide, slide, slide};
  object["use_sliding_window"] = false;
  EXPECT_ERROR(parse(object), "use_sliding_window is not true");
}

TEST(HfConfig, ReadsLlama3Scaling) {
  json object = config("LlamaForCausalLM");
  object["rope_theta"] = 500000.0;
  object["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 512}};
  const ModelSpec spec = parse(object);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(spec.rope.factor, 8.0);
  EXPECT_EQ(spec.rope.original_context, 512u);
  object["rope_scaling"]["high_freq_factor"] = 1.0;
  EXPECT_ERROR(parse(object), "rope_scaling.high_freq_factor", "greater than low_freq_factor");
  object["rope_scaling"].erase("low_freq_factor");
  EXPECT_ERROR(parse(object), "rope_scaling.low_freq_factor: missing");
}

TEST(HfConfig, ReadsYarn) {
  json object = config("Qwen2ForCausalLM");
  object["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  ModelSpec spec = parse(object);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(spec.rope.factor, 4.0);
  EXPECT_EQ(spec.rope.original_context, 1024u);
  EXPECT_EQ(spec.rope.attention_factor, 0.0);
  EXPECT_EQ(spec.rope.beta_fast, 32.0);
  EXPECT_TRUE(spec.rope.truncate);
  object["rope_scaling"].update({{"mscale", 1.0},
                                 {"mscale_all_dim", 0.5},
                                 {"beta_fast", 16},
                                 {"beta_slow", 2},
                                 {"truncate", false}});
  spec = parse(object);
  EXPECT_DOUBLE_EQ(spec.rope.attention_factor,
                   (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1));
  EXPECT_EQ(spec.rope.beta_fast, 16.0);
  EXPECT_EQ(spec.rope.beta_slow, 2.0);
  EXPECT_FALSE(spec.rope.truncate);
  object["rope_scaling"]["attention_factor"] = 1.25;
  EXPECT_EQ(parse(object).rope.attention_factor, 1.25);
  object["rope_scaling"]["factor"] = nullptr;  // then it is 4096 / 1024
  EXPECT_EQ(parse(object).rope.factor, 4.0);
}

TEST(HfConfig, ReadsTheNewerKeys) {
  json object = config("LlamaForCausalLM");
  object.erase("torch_dtype");
  object["dtype"] = "float16";
  object["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5e5}};
  const ModelSpec spec = parse(object);
  EXPECT_EQ(spec.dtype, DType::f16);
  EXPECT_EQ(spec.rope.theta, 5e5);
  EXPECT_EQ(spec.rope.scaling, RopeScaling::linear);
  object["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7e5}};
  EXPECT_EQ(parse(object).rope.theta, 7e5);
  EXPECT_EQ(parse(object).rope.scaling, RopeScaling::none);
  object["rope_parameters"] = {{"full_attention", {{"rope_theta", 1e4}}}};
  EXPECT_ERROR(parse(object), "rope_parameters.full_attention", "one RoPE for all layers");
}

TEST(HfConfig, RefusesOtherMathematics) {
  const json good = config("LlamaForCausalLM");
  for (const char* type : {"dynamic", "longrope", "su"})
    EXPECT_ERROR(parse(with(good, "rope_scaling", {{"type", type}, {"factor", 2.0}})), type,
                 "supported are default, linear, llama3 and yarn");
  EXPECT_ERROR(parse(with(good, "hidden_act", "gelu")), "hidden_act is \"gelu\"", "silu");
  EXPECT_ERROR(parse(with(good, "partial_rotary_factor", 0.5)), "partial_rotary_factor is 0.5");
  EXPECT_ERROR(parse(with(good, "quantization_config", {{"bits", 4}})), "quantization_config",
               "not supported");
  EXPECT_ERROR(parse(with(good, "torch_dtype", "float8_e4m3fn")),
               "torch_dtype is \"float8_e4m3fn\"");
  EXPECT_ERROR(parse(with(good, "architectures", {"GPT2LMHeadModel"})), "\"GPT2LMHeadModel\"",
               "supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM");
  EXPECT_ERROR(parse(without(good, "architectures")), "architectures is missing");
  EXPECT_ERROR(parse(with(good, "architectures", {"A", "B"})), "one name in a list");
}

TEST(HfConfig, RefusesWrongKindsWithKeyAndValue) {
  const json good = config("LlamaForCausalLM");
  EXPECT_ERROR(parse(with(good, "hidden_size", 96.0)),
               "hidden_size is 96.0: must be a whole number");
  EXPECT_ERROR(parse(with(good, "hidden_size", -96)), "hidden_size is -96");
  EXPECT_ERROR(parse(with(good, "hidden_size", "96")), "hidden_size is \"96\"");
  EXPECT_ERROR(parse(with(good, "vocab_size", 1e300)), "vocab_size is 1e+300");
  EXPECT_ERROR(parse(with(good, "vocab_size", uint64_t{1} << 63)),
               "vocab_size is 9223372036854775808");
  EXPECT_ERROR(parse(with(good, "num_hidden_layers", 0)), "num_hidden_layers is 0");
  EXPECT_ERROR(parse(with(good, "rms_norm_eps", "small")), "rms_norm_eps is \"small\"");
  EXPECT_ERROR(parse(with(good, "tie_word_embeddings", 1)), "tie_word_embeddings is 1");
  EXPECT_ERROR(parse(with(good, "rope_scaling", 3)), "rope_scaling is 3");
  EXPECT_ERROR(parse(with(good, "rope_theta", -1)), "rope_theta is -1");
  EXPECT_ERROR(parse_hf_config("[1]", "c"), "c: holds [1], not an object");
  EXPECT_ERROR(parse_hf_config("{", "c"), "c: not valid JSON at byte");
}

TEST(HfConfig, SaysAllThatIsWrongAtOnce) {
  json object = config("LlamaForCausalLM");
  object.erase("hidden_size");
  object["vocab_size"] = -1;
  object["hidden_act"] = "relu";
  EXPECT_ERROR(parse(object), "3 problems", "hidden_size: missing", "vocab_size is -1",
               "hidden_act is \"relu\"");
}

TEST(HfConfig, ChecksTheFactsThemselves) {
  EXPECT_ERROR(parse(with(config("LlamaForCausalLM"), "num_key_value_heads", 5)), "12", "5");
}

TEST(HfConfig, ReadsFactsOfModelsWithExperts) {
  json object = config("Qwen3MoeForCausalLM");
  object["moe_intermediate_size"] = 48;
  object["num_experts"] = 16;
  object["num_experts_per_tok"] = 4;
  ModelSpec spec = parse(object);
  EXPECT_EQ(spec.ffn, 48u);
  EXPECT_EQ(spec.n_experts, 16u);
  EXPECT_EQ(spec.experts_per_token, 4u);
  EXPECT_TRUE(spec.qk_norm);
  EXPECT_ERROR(parse(with(object, "mlp_only_layers", {0})), "mlp_only_layers is [0]");
  spec = parse(config("MixtralForCausalLM"));
  EXPECT_EQ(spec.n_experts, 8u);
  EXPECT_EQ(spec.experts_per_token, 2u);
  EXPECT_EQ(spec.sliding_window, 0u);
  EXPECT_EQ(spec.rope.theta, 1e6);
}

TEST(HfConfig, ReadsAFolderOrAFileOfFacts) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << config("LlamaForCausalLM");
  EXPECT_EQ(read_model(folder.path() + "/").name,
            folder.path().substr(folder.path().rfind('/') + 1));
  ModelSpec spec = read_hf_config(folder.path());
  spec.name = "facts";
  std::ofstream(folder / "facts.yaml") << planner::to_yaml(spec);
  EXPECT_EQ(read_model(folder / "facts.yaml"), spec);
  EXPECT_ERROR(read_model(folder / "absent"), "absent");
}

GenerationDefaults defaults(const json& model, const std::optional<json>& generation) {
  const TemporaryFolder folder;
  std::ofstream(folder / "config.json") << model;
  if (generation) std::ofstream(folder / "generation_config.json") << *generation;
  return read_generation_defaults(folder.path());
}

TEST(GenerationDefaults, TakeSamplingOnlyWhereItIsOn) {
  json generation = {{"do_sample", true},
                     {"temperature", 0.7},
                     {"top_p", 0.8},
                     {"top_k", 20},
                     {"eos_token_id", {5, 6}},
                     {"bos_token_id", 1},
                     {"repetition_penalty", 1.05}};
  GenerationDefaults got = defaults(config("LlamaForCausalLM"), generation);
  EXPECT_EQ(got.eos_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(got.bos_id, 1);
  EXPECT_FLOAT_EQ(got.sampling.temperature, 0.7f);
  EXPECT_FLOAT_EQ(got.sampling.top_p, 0.8f);
  EXPECT_EQ(got.sampling.top_k, 20);
  EXPECT_FLOAT_EQ(got.sampling.repetition_penalty, 1.05f);
  generation["do_sample"] = false;
  got = defaults(config("LlamaForCausalLM"), generation);
  EXPECT_EQ(got.sampling.temperature, 0.0f);
  EXPECT_EQ(got.sampling.top_k, 0);
  EXPECT_EQ(got.sampling.top_p, 1.0f);
  EXPECT_FLOAT_EQ(got.sampling.repetition_penalty, 1.05f);  // shapes greedy decoding too
  generation.erase("do_sample");
  generation["repetition_penalty"] = 0;
  EXPECT_ERROR(defaults(config("LlamaForCausalLM"), generation), "repetition_penalty is 0");
}

TEST(GenerationDefaults, FallBackToTheModelsOwn) {
  const json model = with(with(config("LlamaForCausalLM"), "eos_token_id", 7), "bos_token_id", 3);
  EXPECT_EQ(defaults(model, std::nullopt).eos_ids, std::vector<int32_t>{7});
  EXPECT_EQ(defaults(model, std::nullopt).bos_id, 3);
  EXPECT_EQ(defaults(model, json{{"eos_token_id", 9}}).eos_ids, std::vector<int32_t>{9});
  EXPECT_TRUE(defaults(config("LlamaForCausalLM"), std::nullopt).eos_ids.empty());
}

TEST(GenerationDefaults, RefuseWrongValues) {
  const json model = config("LlamaForCausalLM");
  EXPECT_ERROR(defaults(model, json{{"eos_token_id", -1}}), "generation_config.json",
               "eos_token_id is -1");
  EXPECT_ERROR(defaults(model, json{{"eos_token_id", {1, "x"}}}), "eos_token_id is [1,\"x\"]");
  EXPECT_ERROR(defaults(model, json{{"do_sample", true}, {"top_p", 1.5}}), "top_p is 1.5");
  EXPECT_ERROR(defaults(model, json{{"do_sample", "yes"}}), "do_sample is \"yes\"");
}

TEST(HfConfigWriter, RoundTripsEveryFamily) {
  std::vector<ModelSpec> specs(6, test::small_model());
  specs[0].rope = {.theta = 1e5, .scaling = RopeScaling::linear, .factor = 4};
  specs[0].qkv_bias = specs[0].o_bias = specs[0].ffn_bias = true;
  specs[1].rope = {.scaling = RopeScaling::llama3, .factor = 8, .original_context = 32};
  specs[1].tied_embeddings = true;
  specs[2].architecture = "MistralForCausalLM";
  specs[2].sliding_window = 48;
  specs[2].dtype = DType::f32;
  specs[3].architecture = "Qwen2ForCausalLM";
  specs[3].qkv_bias = true;
  specs[3].sliding_window = 48;
  specs[3].full_attention_layers = 2;
  specs[3].dtype = DType::f16;
  specs[4].architecture = "Qwen3ForCausalLM";
  specs[4].qk_norm = true;
  specs[4].rope = {.scaling = RopeScaling::yarn, .factor = 4, .original_context = 32};
  specs[5].architecture = "MistralForCausalLM";
  specs[5].norm_eps = 1.0 / 3e5;
  for (const ModelSpec& spec : specs) {
    ModelSpec back = parse(json::parse(hf_config_text(spec, {})));
    back.name = spec.name;
    EXPECT_EQ(planner::to_yaml(back), planner::to_yaml(spec));
  }
}

// What weft ships can be made into folders, aliases and all.
TEST(HfConfigWriter, RoundTripsEveryShippedModel) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/configs/models")) {
    if (entry.path().extension() != ".yaml") continue;
    const planner::ModelSpec spec = planner::read_model_yaml(entry.path());
    if (spec.n_experts > 0) continue;  // planned only
    const planner::ModelSpec back = parse_hf_config(hf_config_text(spec, {}), "written");
    EXPECT_EQ(planner::facts_sha256(back), planner::facts_sha256(spec)) << entry.path();
    ++n;
  }
  EXPECT_GE(n, 7u);
}

TEST(HfConfigWriter, RefusesFactsThatConfigsCannotSay) {
  ModelSpec spec = test::small_model();
  spec.qkv_bias = true;  // of a Llama, without o_bias
  EXPECT_ERROR(hf_config_text(spec, {}), "the facts of small", "LlamaForCausalLM");
  spec.architecture = "GPT2LMHeadModel";
  EXPECT_ERROR(hf_config_text(spec, {}), "GPT2LMHeadModel can't be written");
}

}  // namespace
}  // namespace weft::runtime
