#include "planner/gpu_memory.h"

#include <algorithm>
#include <cmath>

#include "planner/plan.h"
#include "runtime/base/error.h"

namespace weft::planner {
namespace {

constexpr double kMib = 1 << 20;
// A captured decode step keeps its kernels' arguments and workspaces: engines report 0.5 to 1.5 GiB
// for models of 32 to 94 layers.
constexpr double kGraphBytesALayer = 8 * kMib;
// Channels of a communicator, with its peers' buffers.
constexpr double kCommunicatorBytes = 512 * kMib;
constexpr double kMostBytes = 1e18;

size_t as_bytes(double bytes) {
  if (!(bytes < kMostBytes)) throw input_error("memory: {} bytes are beyond planning", bytes);
  return static_cast<size_t>(std::ceil(bytes));
}

// Sizes of one rank, as real numbers: products of them stay exact far beyond any GPU's memory.
struct Sizes {
  double hidden, heads, kv_heads, head_dim, vocab;
  double experts;  // on this rank; 1 for a dense layer
  double ffn;      // columns of one of them on this rank

  Sizes(const StepSetting& setting, const StageShape& shape) {
    const ModelSpec& model = *setting.model;
    const std::string problem = tp_problem(model, shape.tp, false);
    if (!problem.empty()) throw input_error("{}", problem);
    const ShardShapes shard = shard_shapes(model, shape.tp, 0);
    hidden = static_cast<double>(model.hidden);
    head_dim = static_cast<double>(model.head_dim);
    heads = static_cast<double>(shard.heads.size());
    kv_heads = static_cast<double>(shard.kv_heads.size());
    vocab = static_cast<double>(shard.vocab.size());
    experts = 1;
    ffn = static_cast<double>(shard.ffn.size());
    if (model.n_experts != 0) split_experts(model, shape, setting.attention_dp);
  }

  void split_experts(const ModelSpec& model, const StageShape& shape, size_t attention_dp) {
    const size_t width = shape.tp * attention_dp;
    if (shape.ep == 0 || width % shape.ep != 0 || model.n_experts % shape.ep != 0)
      throw input_error("ep {} does not divide the {} ranks and the {} experts", shape.ep, width,
                        model.n_experts);
    experts = static_cast<double>(model.n_experts / shape.ep);
    ffn = std::ceil(static_cast<double>(model.ffn * shape.ep) / static_cast<double>(width));
  }
};

double layer_weight_bytes(const StepSetting& setting, const Sizes& s) {
  const ModelSpec& model = *setting.model;
  const double qkv = (s.heads + 2 * s.kv_heads) * s.head_dim;
  const double matrices =
      qkv * s.hidden + s.hidden * s.heads * s.head_dim + s.experts * 3 * s.hidden * s.ffn;
  double plain = 2 * s.hidden;  // norms, biases and the router stay in bf16
  if (model.qkv_bias) plain += qkv;
  if (model.o_bias) plain += s.hidden;
  if (model.ffn_bias) plain += 2 * s.ffn + s.hidden;
  if (model.qk_norm) plain += 2 * s.head_dim;
  plain += static_cast<double>(model.n_experts) * s.hidden;
  return matrices * weight_bytes_each(setting.weights) + plain * 2;
}

double weight_bytes(const StepSetting& setting, const StageShape& shape, const Sizes& s) {
  double bytes = static_cast<double>(shape.n_layers) * layer_weight_bytes(setting, s);
  const double table = s.vocab * s.hidden * 2;
  if (shape.has_embedding) bytes += table;
  if (shape.has_head) bytes += s.hidden * 2;
  if (shape.has_head && !(shape.has_embedding && setting.model->tied_embeddings)) bytes += table;
  return bytes;
}

// Residual, its norm, q k v, attended, gate and up, gated; experts see a row a chosen expert.
double activation_bytes(const StepSetting& setting, const Sizes& s, double tokens) {
  const double copies = static_cast<double>(std::max<size_t>(1, setting.model->experts_per_token));
  const double attention = (2 * s.heads + 2 * s.kv_heads) * s.head_dim;
  return tokens * 2 * (2 * s.hidden + attention + copies * 3 * s.ffn);
}

double buffer_bytes(const StepSetting& setting, const StageShape& shape, const Sizes& s,
                    double tokens, double batch) {
  double bytes = 0;
  const bool is_whole = shape.has_embedding && shape.has_head;
  if (shape.tp * setting.attention_dp > 1 || !is_whole) bytes += kCommunicatorBytes;
  if (!is_whole) bytes += 2 * tokens * s.hidden * 2;  // both ends of an edge are double
  if (shape.has_head) bytes += batch * s.vocab * 4 * (1 + static_cast<double>(shape.tp));
  return bytes;
}

}  // namespace

GpuMemory gpu_memory(const StepSetting& setting, const StageShape& shape, size_t batch,
                     size_t prefill_chunk, double reserve_gib) {
  const Sizes s(setting, shape);
  const double tokens = static_cast<double>(std::max(batch, prefill_chunk));
  GpuMemory memory;
  memory.weights = as_bytes(weight_bytes(setting, shape, s));
  memory.activations = as_bytes(activation_bytes(setting, s, tokens));
  memory.graphs = as_bytes(static_cast<double>(shape.n_layers) * kGraphBytesALayer);
  memory.buffers = as_bytes(buffer_bytes(setting, shape, s, tokens, static_cast<double>(batch)));
  memory.reserve = as_bytes(reserve_gib * 1024 * kMib);
  return memory;
}

size_t gpu_kv_block_bytes(const StepSetting& setting, const StageShape& shape) {
  const Sizes s(setting, shape);
  const double pair = kv_bytes_each(setting.kv_key) + kv_bytes_each(setting.kv_value);
  return as_bytes(static_cast<double>(kKvBlockTokens) * static_cast<double>(shape.n_layers) *
                  s.kv_heads * s.head_dim * pair);
}

}  // namespace weft::planner
