// Reads a Hugging Face folder's config.json and generation_config.json into model facts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sampling.h"
#include "planner/model_spec.h"

namespace weft::runtime {

// Llama, Mistral, Qwen2 and Qwen3 (classic keys and the newer `rope_parameters`, `dtype` ones).
// Throws Error: another architecture (with what is supported), missing or wrong keys, values that
// change the mathematics in a way weft does not have (hidden_act other than silu, …).
planner::ModelSpec parse_hf_config(std::string_view json, const std::string& where);
planner::ModelSpec read_hf_config(const std::string& folder);

// A folder with config.json, or a YAML file of facts.
planner::ModelSpec read_model(const std::string& folder_or_yaml);

// What the model's authors advise. Sampling is taken only where `do_sample` is true.
struct GenerationDefaults {
  std::vector<int32_t> eos_ids;  // from generation_config.json, else config.json
  std::optional<int32_t> bos_id;
  kernels::SamplingParams sampling;
};
GenerationDefaults read_generation_defaults(const std::string& folder);

}  // namespace weft::runtime
