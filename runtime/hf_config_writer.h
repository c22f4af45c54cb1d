// Model facts as a Hugging Face config.json, in the classic keys that every version of transformers
// reads.
#pragma once

#include <string>

#include "planner/model_spec.h"
#include "runtime/hf_config.h"

namespace weft::runtime {

// Throws Error where the facts are none that config.json can say (they read back otherwise).
std::string hf_config_text(const planner::ModelSpec& spec, const GenerationDefaults& defaults);

std::string generation_config_text(const GenerationDefaults& defaults);

}  // namespace weft::runtime
