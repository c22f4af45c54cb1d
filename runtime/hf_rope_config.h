// The rotary-embedding part of config.json, in its three spellings.
#pragma once

#include "planner/model_spec.h"
#include "runtime/json_text.h"

namespace weft::runtime {

// `rope_scaling` with `type` or `rope_type` beside `rope_theta`, or `rope_parameters` that holds
// both. `context` is max_position_embeddings. What is wrong goes where `config` collects it.
planner::RopeSpec read_rope(const JsonFields& config, double default_theta, size_t context,
                            std::vector<std::string>& wrong);

// The classic spelling: the value of `rope_scaling`, null where nothing is scaled.
nlohmann::json rope_scaling_json(const planner::RopeSpec& rope);

}  // namespace weft::runtime
