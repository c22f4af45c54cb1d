// What `--model` and `--weights` name: facts, tokenizer, generation defaults, and where the weights
// come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "planner/model_spec.h"
#include "runtime/hf_config.h"
#include "runtime/tensor_source.h"
#include "runtime/tokenizer.h"

namespace weft::launch {

// "checkpoint" (the model folder's own) or "synthetic:SEED".
struct WeightsChoice {
  bool synthetic = false;
  uint64_t seed = 0;
};
// Throws Error for anything else, and for a checkpoint where the model is only a file of facts.
WeightsChoice parse_weights(const std::string& text, const std::string& model);

std::unique_ptr<runtime::TensorSource> open_weights(const WeightsChoice& choice,
                                                    const std::string& model,
                                                    const planner::ModelSpec& spec);

// Null where the model is a file of facts or its folder has no tokenizer.json.
std::unique_ptr<runtime::Tokenizer> open_tokenizer(const std::string& model,
                                                   const planner::ModelSpec& spec);

// Empty defaults for a file of facts.
runtime::GenerationDefaults generation_defaults(const std::string& model);

}  // namespace weft::launch
