// Model facts as a Hugging Face config.json.
#include "runtime/hf_config_writer.h"

#include "runtime/base/error.h"
#include "runtime/hf_rope_config.h"

namespace weft::runtime {
namespace {

using Json = nlohmann::json;
using planner::ModelSpec;

struct ModelType {
  const char* architecture;
  const char* model_type;
};
constexpr ModelType kTypes[] = {{"LlamaForCausalLM", "llama"},
                                {"MistralForCausalLM", "mistral"},
                                {"Qwen2ForCausalLM", "qwen2"},
                                {"Qwen3ForCausalLM", "qwen3"}};

std::string model_type(const std::string& architecture) {
  for (const ModelType& type : kTypes)
    if (architecture == type.architecture) return type.model_type;
  throw input_error("architecture {} can't be written as a Hugging Face folder", architecture);
}

const char* torch_name(DType dtype) {
  if (dtype == DType::bf16) return "bfloat16";
  return dtype == DType::f16 ? "float16" : "float32";
}

void add_family(const ModelSpec& spec, const std::string& type, Json& json) {
  if (type == "llama") {
    json["attention_bias"] = spec.qkv_bias;
    json["mlp_bias"] = spec.ffn_bias;
    return;
  }
  const Json window = spec.sliding_window == 0 ? Json() : Json(spec.sliding_window);
  json["sliding_window"] = window;
  if (type == "mistral") return;
  if (type == "qwen3") json["attention_bias"] = spec.qkv_bias;
  json["use_sliding_window"] = spec.sliding_window > 0;
  json["max_window_layers"] = spec.sliding_window > 0 ? spec.full_attention_layers : spec.n_layers;
}

void add_ends(const GenerationDefaults& defaults, Json& json) {
  json["bos_token_id"] = defaults.bos_id ? Json(*defaults.bos_id) : Json();
  const auto& ends = defaults.eos_ids;
  json["eos_token_id"] = ends.empty() ? Json() : ends.size() == 1 ? Json(ends[0]) : Json(ends);
}

}  // namespace

std::string hf_config_text(const ModelSpec& spec, const GenerationDefaults& defaults) {
  const std::string type = model_type(spec.architecture);
  Json json = {{"architectures", Json::array({spec.architecture})},
               {"model_type", type},
               {"num_hidden_layers", spec.n_layers},
               {"hidden_size", spec.hidden},
               {"intermediate_size", spec.ffn},
               {"num_attention_heads", spec.n_heads},
               {"num_key_value_heads", spec.n_kv_heads},
               {"head_dim", spec.head_dim},
               {"vocab_size", spec.vocab},
               {"max_position_embeddings", spec.context},
               {"rms_norm_eps", spec.norm_eps},
               {"rope_theta", spec.rope.theta},
               {"rope_scaling", rope_scaling_json(spec.rope)},
               {"tie_word_embeddings", spec.tied_embeddings},
               {"torch_dtype", torch_name(spec.dtype)},
               {"hidden_act", "silu"}};
  add_family(spec, type, json);
  add_ends(defaults, json);
  const std::string text = json.dump(2) + "\n";
  ModelSpec back = parse_hf_config(text, "config.json of " + spec.name);
  back.name = spec.name;  // names are no facts, and config.json has none
  back.aliases = spec.aliases;
  if (back != spec)
    throw input_error("the facts of {} are none that a {} config can say:\n{}but read back\n{}",
                      spec.name, spec.architecture, planner::to_yaml(spec), planner::to_yaml(back));
  return text;
}

std::string generation_config_text(const GenerationDefaults& defaults) {
  Json json = Json::object();
  add_ends(defaults, json);
  const kernels::SamplingParams& sampling = defaults.sampling;
  json["do_sample"] = sampling.temperature > 0;
  if (sampling.temperature > 0) {
    json["temperature"] = sampling.temperature;
    json["top_k"] = sampling.top_k;
    json["top_p"] = sampling.top_p;
    json["repetition_penalty"] = sampling.repetition_penalty;
  }
  return json.dump(2) + "\n";
}

}  // namespace weft::runtime
