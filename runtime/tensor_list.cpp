// The tensors of a dense Llama, Mistral, Qwen2 or Qwen3 model.
#include "runtime/tensor_list.h"

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

void add_projection(std::vector<NamedShape>& list, size_t layer, const char* name, size_t rows,
                    size_t columns, bool bias) {
  list.push_back({layer_tensor(layer, fmt::format("{}.weight", name)), {rows, columns}});
  if (bias) list.push_back({layer_tensor(layer, fmt::format("{}.bias", name)), {rows}});
}

void add_layer(std::vector<NamedShape>& list, size_t layer, const planner::ModelSpec& spec) {
  const size_t q_rows = spec.n_heads * spec.head_dim;
  const size_t kv_rows = spec.n_kv_heads * spec.head_dim;
  list.push_back({layer_tensor(layer, "input_layernorm.weight"), {spec.hidden}});
  add_projection(list, layer, "self_attn.q_proj", q_rows, spec.hidden, spec.qkv_bias);
  add_projection(list, layer, "self_attn.k_proj", kv_rows, spec.hidden, spec.qkv_bias);
  add_projection(list, layer, "self_attn.v_proj", kv_rows, spec.hidden, spec.qkv_bias);
  if (spec.qk_norm) {
    list.push_back({layer_tensor(layer, "self_attn.q_norm.weight"), {spec.head_dim}});
    list.push_back({layer_tensor(layer, "self_attn.k_norm.weight"), {spec.head_dim}});
  }
  add_projection(list, layer, "self_attn.o_proj", spec.hidden, q_rows, spec.o_bias);
  list.push_back({layer_tensor(layer, "post_attention_layernorm.weight"), {spec.hidden}});
  add_projection(list, layer, "mlp.gate_proj", spec.ffn, spec.hidden, spec.ffn_bias);
  add_projection(list, layer, "mlp.up_proj", spec.ffn, spec.hidden, spec.ffn_bias);
  add_projection(list, layer, "mlp.down_proj", spec.hidden, spec.ffn, spec.ffn_bias);
}

}  // namespace

std::string layer_tensor(size_t layer, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

std::vector<NamedShape> tensor_list(const planner::ModelSpec& spec) {
  if (spec.n_experts > 0)
    throw input_error("{} has {} experts a layer: weft plans such models but cannot run them yet",
                      spec.name, spec.n_experts);
  std::vector<NamedShape> list;
  list.push_back({kEmbeddingName, {spec.vocab, spec.hidden}});
  for (size_t layer = 0; layer < spec.n_layers; ++layer) add_layer(list, layer, spec);
  list.push_back({kFinalNormName, {spec.hidden}});
  if (!spec.tied_embeddings) list.push_back({kHeadName, {spec.vocab, spec.hidden}});
  return list;
}

size_t n_elements(const std::vector<size_t>& shape) {
  size_t n = 1;
  for (size_t dimension : shape) n *= dimension;
  return n;
}

}  // namespace weft::runtime
