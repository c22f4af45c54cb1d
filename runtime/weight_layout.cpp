// Where each tensor of a stage goes in a rank's arena.
#include "runtime/weight_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/tensor_list.h"

namespace weft::runtime {
namespace {

using planner::ModelSpec;
using planner::Range;
using planner::ShardShapes;

constexpr size_t kAlignment = 64;  // bytes: a cache line, the widest vector

Range times(Range range, size_t n) { return {range.begin * n, range.end * n}; }
// Padding lies beyond what the checkpoint has.
Range clip(Range range, size_t n) { return {std::min(range.begin, n), std::min(range.end, n)}; }

class Layout {
 public:
  Layout(const ModelSpec& spec, DType dtype, const ShardShapes& shard, std::byte* base,
         std::vector<TensorLoad>& loads, GateUpOrder order, const FilePhase& phase)
      : spec_(spec),
        dtype_(dtype),
        shard_(shard),
        base_(base),
        loads_(loads),
        order_(order),
        phase_(phase) {}

  size_t bytes() const { return used_; }

  LayerWeights layer(size_t layer) {
    LayerWeights w;
    const size_t hidden = spec_.hidden, d = spec_.head_dim, f = shard_.ffn.size();
    const size_t h = shard_.heads.size(), kv = shard_.kv_heads.size();
    const auto name = [&](const char* rest) { return layer_tensor(layer, rest); };
    w.input_norm = whole(name("input_layernorm.weight"), hidden);
    w.qkv =
        take((h + 2 * kv) * d * hidden, name("self_attn.q_proj.weight"), shard_.heads.begin * d);
    qkv_parts(layer, "weight", hidden);
    if (spec_.qkv_bias) {
      w.qkv_bias = take((h + 2 * kv) * d, name("self_attn.q_proj.bias"), shard_.heads.begin * d);
      qkv_parts(layer, "bias", 1);
    }
    if (spec_.qk_norm) {
      w.q_norm = whole(name("self_attn.q_norm.weight"), d);
      w.k_norm = whole(name("self_attn.k_norm.weight"), d);
    }
    w.o = take(hidden * h * d, name("self_attn.o_proj.weight"), 0);
    part(name("self_attn.o_proj.weight"), {0, hidden}, 0, ColumnSplit::heads);
    if (spec_.o_bias) w.o_bias = whole(name("self_attn.o_proj.bias"), hidden);
    w.post_norm = whole(name("post_attention_layernorm.weight"), hidden);
    w.gate_up = take(2 * f * hidden, name("mlp.gate_proj.weight"), ffn_row());
    gate_up_parts(layer, "weight", hidden);
    if (spec_.ffn_bias) {
      w.gate_up_bias = take(2 * f, name("mlp.gate_proj.bias"), ffn_row());
      gate_up_parts(layer, "bias", 1);
    }
    w.down = take(hidden * f, name("mlp.down_proj.weight"), 0);
    part(name("mlp.down_proj.weight"), {0, hidden}, 0, ColumnSplit::ffn);
    if (spec_.ffn_bias) w.down_bias = whole(name("mlp.down_proj.bias"), hidden);
    return w;
  }

  In whole(const std::string& name, size_t n) {
    const In at = take(n, name, 0);
    part(name, {0, n}, 0);
    return at;
  }

  // [v, hidden]
  In vocabulary(const char* name) {
    const Range rows = clip(shard_.vocab, spec_.vocab);
    const In at = take(shard_.vocab.size() * spec_.hidden, name, rows.begin);
    part(name, rows, 0);
    return at;
  }

 private:
  // An operand of n elements; `row` of tensor `name` is its first.
  In take(size_t n, const std::string& name, size_t row) {
    const size_t n_bytes = n * dtype_bytes(dtype_);
    std::optional<size_t> phase;
    if (phase_ && n_bytes >= kMappedBytes) phase = phase_(name, row);
    if (phase)  // the next place that far beyond a multiple of kMapAlign
      block_ = used_ + (*phase + kMapAlign - used_ % kMapAlign) % kMapAlign;
    else
      block_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    used_ = block_ + n_bytes;
    return {at(0), dtype_};
  }

  size_t ffn_row() const { return clip(shard_.ffn, spec_.ffn).begin; }

  std::byte* at(size_t element) const {
    return base_ == nullptr ? nullptr : base_ + block_ + element * dtype_bytes(dtype_);
  }

  // `offset`: elements from the start of the operand taken last.
  void part(const std::string& name, Range rows, size_t offset,
            ColumnSplit split = ColumnSplit::none, size_t row_step = 1) {
    if (base_ != nullptr && rows.size() > 0)
      loads_.push_back({name, rows, split, at(offset), row_step});
  }

  void qkv_parts(size_t layer, const char* kind, size_t columns) {
    const size_t d = spec_.head_dim;
    const size_t q_size = shard_.heads.size() * d * columns;
    const size_t kv_size = shard_.kv_heads.size() * d * columns;
    const auto name = [&](const char* which) {
      return layer_tensor(layer, fmt::format("self_attn.{}_proj.{}", which, kind));
    };
    part(name("q"), times(shard_.heads, d), 0);
    part(name("k"), times(shard_.kv_heads, d), q_size);
    part(name("v"), times(shard_.kv_heads, d), q_size + kv_size);
  }

  void gate_up_parts(size_t layer, const char* kind, size_t columns) {
    const Range rows = clip(shard_.ffn, spec_.ffn);
    const bool in_turn = order_ == GateUpOrder::interleaved;
    const size_t up = (in_turn ? 1 : shard_.ffn.size()) * columns;
    const auto name = [&](const char* which) {
      return layer_tensor(layer, fmt::format("mlp.{}_proj.{}", which, kind));
    };
    part(name("gate"), rows, 0, ColumnSplit::none, in_turn ? 2 : 1);
    part(name("up"), rows, up, ColumnSplit::none, in_turn ? 2 : 1);
  }

  const ModelSpec& spec_;
  DType dtype_;
  const ShardShapes& shard_;
  std::byte* base_;
  std::vector<TensorLoad>& loads_;
  GateUpOrder order_;
  const FilePhase& phase_;
  size_t used_ = 0;   // bytes
  size_t block_ = 0;  // bytes before the operand taken last
};

}  // namespace

ColumnPart column_part(const ModelSpec& spec, ColumnSplit split, size_t tp, size_t tp_rank) {
  const ShardShapes shard = planner::shard_shapes(spec, tp, tp_rank);
  if (split == ColumnSplit::heads) {
    const Range columns = times(shard.heads, spec.head_dim);
    return {columns, columns.size()};
  }
  return {clip(shard.ffn, spec.ffn), shard.ffn.size()};
}

size_t lay_out(const ModelSpec& spec, const planner::Plan& plan, size_t stage, size_t tp_rank,
               std::byte* base, StageWeights& weights, std::vector<TensorLoad>& loads,
               GateUpOrder order, const FilePhase& phase) {
  const auto& stages = plan.replicas.at(0).stages;
  const planner::Stage& mine = stages.at(stage);
  const ShardShapes shard = planner::shard_shapes(spec, mine.tp, tp_rank);
  Layout layout(spec, plan.formats.weights, shard, base, loads, order, phase);
  weights.layers.clear();
  if (stage == 0) weights.embedding = layout.vocabulary(kEmbeddingName);
  for (size_t layer = mine.layers.begin; layer < mine.layers.end; ++layer)
    weights.layers.push_back(layout.layer(layer));
  if (stage + 1 < stages.size()) return layout.bytes();
  weights.final_norm = layout.whole(kFinalNormName, spec.hidden);
  if (!spec.tied_embeddings)
    weights.head = layout.vocabulary(kHeadName);
  else
    weights.head = stage == 0 ? weights.embedding : layout.vocabulary(kEmbeddingName);
  return layout.bytes();
}

}  // namespace weft::runtime
