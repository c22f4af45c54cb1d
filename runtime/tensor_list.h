// The tensors of a model by their Hugging Face names, with their shapes: what a checkpoint must
// hold, what `synth` writes and what loading asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/model_spec.h"

namespace weft::runtime {

struct NamedShape {
  std::string name;
  std::vector<size_t> shape;  // [rows, columns], or [n]
};

inline constexpr const char* kEmbeddingName = "model.embed_tokens.weight";  // [vocab, hidden]
inline constexpr const char* kFinalNormName = "model.norm.weight";          // [hidden]
inline constexpr const char* kHeadName = "lm_head.weight";  // [vocab, hidden], unless tied

// "model.layers.3.mlp.up_proj.weight" for (3, "mlp.up_proj.weight").
std::string layer_tensor(size_t layer, std::string_view rest);

// Embedding, layers in order, final norm, head unless tied. Throws Error for a model with experts,
// whose tensors weft does not execute.
std::vector<NamedShape> tensor_list(const planner::ModelSpec& spec);

size_t n_elements(const std::vector<size_t>& shape);

}  // namespace weft::runtime
