// config.json of the supported families into model facts, with each family's own defaults, and the
// generation settings that come beside it.
#include "runtime/hf_config.h"

#include <algorithm>

#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/hf_rope_config.h"
#include "runtime/json_text.h"

namespace weft::runtime {
namespace {

using Json = nlohmann::json;
using planner::ModelSpec;

constexpr size_t kMostConfigBytes = size_t{1} << 20;
// Far above any model, and small enough that no product of two overflows.
constexpr size_t kMostLayers = 10'000;
constexpr size_t kMostWidth = size_t{1} << 24;
constexpr size_t kMostContext = size_t{1} << 30;
constexpr size_t kMostId = (size_t{1} << 31) - 1;

// What a family leaves out of its files, and what it never has.
struct Family {
  const char* architecture;
  size_t default_kv_heads;  // where the key is absent; 0 = n_heads
  size_t default_head_dim;  // 0 = hidden / n_heads
  size_t default_context;
  double default_eps;
  double default_theta;
  bool qkv_bias;        // always
  bool attention_bias;  // has the key: biases on q, k, v and o
  bool mlp_bias;        // has the key
  bool qk_norm;
  bool experts;
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", 0, 0, 2048, 1e-6, 1e4, false, true, true, false, false},
    {"MistralForCausalLM", 8, 0, 131072, 1e-6, 1e4, false, false, false, false, false},
    {"Qwen2ForCausalLM", 32, 0, 32768, 1e-6, 1e4, true, false, false, false, false},
    {"Qwen3ForCausalLM", 32, 128, 32768, 1e-6, 1e4, false, true, false, true, false},
    {"MixtralForCausalLM", 8, 0, 131072, 1e-5, 1e6, false, false, false, false, true},
    {"Qwen3MoeForCausalLM", 4, 0, 32768, 1e-6, 1e4, false, true, false, true, true},
};

const Family& family_of(const Json& json, const std::string& where) {
  const auto list = json.find("architectures");
  if (list == json.end() || !list->is_array() || list->size() != 1 || !list->front().is_string())
    throw input_error("{}: architectures is {}; one name in a list is expected", where,
                      list == json.end() ? "missing" : brief(*list));
  const std::string& name = list->front().get_ref<const std::string&>();
  std::string known;
  for (const Family& family : kFamilies) {
    if (name == family.architecture) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  throw input_error("{}: architecture {} is not supported; supported are {}", where,
                    brief(list->front()), known);
}

DType read_dtype(const JsonFields& config) {
  const char* key = config.find("torch_dtype") != nullptr ? "torch_dtype" : "dtype";
  const auto text = config.text(key);
  if (!text || *text == "float32") return DType::f32;  // absent: torch's default
  if (*text == "bfloat16") return DType::bf16;
  if (*text != "float16") config.refuse(key, "supported are bfloat16, float16 and float32");
  return DType::f16;
}

void refuse_other_mathematics(const JsonFields& config) {
  if (config.text("hidden_act").value_or("silu") != "silu")
    config.refuse("hidden_act", "only silu is supported");
  if (config.number("partial_rotary_factor", 0, 1).value_or(1) != 1)
    config.refuse("partial_rotary_factor", "only whole heads are rotated here: 1 is supported");
  if (config.find("quantization_config") != nullptr)
    config.refuse("quantization_config", "quantized checkpoints are not supported");
}

void read_shape(const JsonFields& config, const Family& family, ModelSpec& spec) {
  spec.n_layers = config.required_count("num_hidden_layers", 1, kMostLayers);
  spec.hidden = config.required_count("hidden_size", 1, kMostWidth);
  spec.n_heads = config.required_count("num_attention_heads", 1, kMostWidth);
  spec.ffn = config.required_count(family.experts && config.contains("moe_intermediate_size")
                                       ? "moe_intermediate_size"
                                       : "intermediate_size",
                                   1, kMostWidth);
  spec.vocab = config.required_count("vocab_size", 1, kMostWidth);
  const bool no_kv = !config.contains("num_key_value_heads") && family.default_kv_heads > 0;
  spec.n_kv_heads = config.count("num_key_value_heads", 1, kMostWidth)
                        .value_or(no_kv ? family.default_kv_heads : spec.n_heads);
  const size_t even = spec.n_heads == 0 ? 0 : spec.hidden / spec.n_heads;
  spec.head_dim = config.count("head_dim", 1, kMostWidth)
                      .value_or(family.default_head_dim > 0 ? family.default_head_dim : even);
  spec.context =
      config.count("max_position_embeddings", 1, kMostContext).value_or(family.default_context);
}

void read_biases(const JsonFields& config, const Family& family, ModelSpec& spec) {
  const bool attention = family.attention_bias && config.flag("attention_bias").value_or(false);
  spec.qkv_bias = family.qkv_bias || attention;
  spec.o_bias = attention;
  spec.ffn_bias = family.mlp_bias && config.flag("mlp_bias").value_or(false);
  spec.qk_norm = family.qk_norm;
}

// layer_types must be full layers, then sliding ones; their number of full layers, or none.
std::optional<size_t> full_layers(const JsonFields& config, size_t n_layers) {
  const Json* list = config.find("layer_types");
  if (list == nullptr) return std::nullopt;
  size_t n_full = 0;
  bool in_order = list->is_array() && list->size() == n_layers;
  for (size_t i = 0; in_order && i < n_layers; ++i) {
    const bool full = (*list)[i] == "full_attention";
    in_order = full ? n_full == i : (*list)[i] == "sliding_attention";
    n_full += full ? 1 : 0;
  }
  if (in_order) return n_full;
  config.refuse("layer_types",
                fmt::format("must name {} layers: first \"full_attention\" ones, then "
                            "\"sliding_attention\" ones; other orders are not supported",
                            n_layers));
  return std::nullopt;
}

void read_window(const JsonFields& config, const Family& family, ModelSpec& spec) {
  const std::string_view name = family.architecture;
  if (name == "LlamaForCausalLM") return;
  const bool mistral = name == "MistralForCausalLM";
  const bool switched = name.starts_with("Qwen");
  const bool has_key = config.contains("sliding_window");
  const auto given = config.count("sliding_window", 1, kMostContext);
  if (switched && !config.flag("use_sliding_window").value_or(false)) {
    if (full_layers(config, spec.n_layers).value_or(spec.n_layers) != spec.n_layers)
      config.refuse("layer_types", "has sliding layers, but use_sliding_window is not true");
    return;
  }
  spec.sliding_window = given.value_or(!has_key && (mistral || switched) ? 4096 : 0);
  if (spec.sliding_window == 0) return;
  const bool split = name == "Qwen2ForCausalLM" || name == "Qwen3ForCausalLM";
  const size_t first = split ? config.count("max_window_layers", 0, kMostLayers).value_or(28) : 0;
  spec.full_attention_layers =
      full_layers(config, spec.n_layers).value_or(std::min(first, spec.n_layers));
  if (spec.full_attention_layers < spec.n_layers) return;
  spec.sliding_window = 0;  // no layer slides
  spec.full_attention_layers = 0;
}

void read_experts(const JsonFields& config, const Family& family, ModelSpec& spec) {
  if (!family.experts) return;
  const bool qwen = std::string_view(family.architecture).starts_with("Qwen");
  const char* key = config.contains("num_experts") ? "num_experts" : "num_local_experts";
  spec.n_experts = config.count(key, 1, kMostLayers).value_or(qwen ? 128 : 8);
  spec.experts_per_token =
      config.count("num_experts_per_tok", 1, kMostLayers).value_or(qwen ? 8 : 2);
  if (config.count("decoder_sparse_step", 0, kMostLayers).value_or(1) != 1)
    config.refuse("decoder_sparse_step", "experts in every layer are supported: 1");
  const Json* dense = config.find("mlp_only_layers");
  if (dense != nullptr && !dense->empty())
    config.refuse("mlp_only_layers", "experts in every layer are supported: []");
}

// A folder's last name, as a model is called: "…/models/demo/" is "demo".
std::string name_of(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder.substr(folder.rfind('/') + 1);
}

std::string config_path(const std::string& folder) { return folder + "/config.json"; }

Json read_object(const std::string& path) {
  const Json json = parse_json(read_text(path, kMostConfigBytes), path);
  if (!json.is_object()) throw input_error("{}: holds {}, not an object", path, brief(json));
  return json;
}

std::vector<int32_t> read_ids(const JsonFields& fields, const char* key) {
  const Json* value = fields.find(key);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    const auto id = fields.count(key, 0, kMostId);
    return id ? std::vector<int32_t>{static_cast<int32_t>(*id)} : std::vector<int32_t>{};
  }
  std::vector<int32_t> ids;
  for (const Json& item : *value)
    if (item.is_number_unsigned() && item.get<uint64_t>() <= kMostId)
      ids.push_back(item.get<int32_t>());
  if (ids.size() != value->size() || ids.size() > 1024)
    fields.refuse(key, "must be a token id or a list of at most 1024");
  return ids;
}

void read_ends(const std::string& path, GenerationDefaults& defaults) {
  const Json json = read_object(path);
  std::vector<std::string> wrong;
  const JsonFields fields(json, "", wrong);
  if (defaults.eos_ids.empty()) defaults.eos_ids = read_ids(fields, "eos_token_id");
  const std::vector<int32_t> bos = read_ids(fields, "bos_token_id");
  if (!defaults.bos_id && !bos.empty()) defaults.bos_id = bos.front();
  planner::refuse(path, wrong);
}

void read_sampling(const std::string& path, kernels::SamplingParams& sampling) {
  const Json json = read_object(path);
  std::vector<std::string> wrong;
  const JsonFields fields(json, "", wrong);
  const auto real = [](std::optional<double> x) { return static_cast<float>(x.value_or(1)); };
  if (fields.flag("do_sample").value_or(false)) {
    sampling.temperature = real(fields.number("temperature", 0, 1e6));
    sampling.top_k = static_cast<int32_t>(fields.count("top_k", 0, kMostId).value_or(0));
    sampling.top_p = real(fields.number("top_p", 1e-6, 1));
  }
  // Applies to greedy decoding too.
  sampling.repetition_penalty = real(fields.number("repetition_penalty", 1e-3, 1e3));
  planner::refuse(path, wrong);
}

}  // namespace

ModelSpec parse_hf_config(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  if (!json.is_object()) throw input_error("{}: holds {}, not an object", where, brief(json));
  const Family& family = family_of(json, where);
  std::vector<std::string> wrong;
  const JsonFields config(json, "", wrong);
  ModelSpec spec;
  spec.architecture = family.architecture;
  refuse_other_mathematics(config);
  read_shape(config, family, spec);
  read_biases(config, family, spec);
  read_window(config, family, spec);
  read_experts(config, family, spec);
  spec.rope = read_rope(config, family.default_theta, spec.context, wrong);
  spec.norm_eps = config.number("rms_norm_eps", 0, 1).value_or(family.default_eps);
  spec.tied_embeddings = config.flag("tie_word_embeddings").value_or(false);
  spec.dtype = read_dtype(config);
  planner::refuse(where, wrong);
  planner::refuse(where, planner::problems(spec));
  return spec;
}

ModelSpec read_hf_config(const std::string& folder) {
  const std::string path = config_path(folder);
  ModelSpec spec = parse_hf_config(read_text(path, kMostConfigBytes), path);
  spec.name = name_of(folder);
  return spec;
}

ModelSpec read_model(const std::string& folder_or_yaml) {
  if (is_folder(folder_or_yaml)) return read_hf_config(folder_or_yaml);
  return planner::read_model_yaml(folder_or_yaml);
}

GenerationDefaults read_generation_defaults(const std::string& folder) {
  GenerationDefaults defaults;
  const std::string path = folder + "/generation_config.json";
  if (is_file(path)) {
    read_ends(path, defaults);
    read_sampling(path, defaults.sampling);
  }
  read_ends(config_path(folder), defaults);
  return defaults;
}

}  // namespace weft::runtime
