// The table of rotary angles that all layers share, for each way of stretching the context.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/model_spec.h"

namespace weft::runtime {

// Inverse frequencies [head_dim / 2] after scaling: linear (Chen et al., "Extending Context
// Window", 2023), llama3 (Llama 3.1's config), YaRN (Peng et al., 2023). Float32 in the places
// where transformers has float32, since angles at large positions feel the last bit.
std::vector<float> rope_frequencies(const planner::RopeSpec& rope, size_t head_dim);

// What cos and sin are multiplied by: 1 but for YaRN.
float rope_attention_factor(const planner::RopeSpec& rope);

// [context, head_dim / 2, 2] (cos, sin).
std::vector<float> rope_table(const planner::RopeSpec& rope, size_t head_dim, size_t context);

}  // namespace weft::runtime
