// A decoder layer, as its equations: x += O·attend(norm(x)); x += D·swiglu(GU·norm(x)).
#include "runtime/decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "runtime/base/error.h"
#include "runtime/rope_table.h"

namespace weft::runtime {
namespace {

using kernels::In;
using kernels::Out;

size_t qkv_width(const DecoderShape& s) {
  return (s.shard.heads.size() + 2 * s.shard.kv_heads.size()) * s.spec.head_dim;
}

// A part of a buffer, from an element on.
Out from_element(Out buffer, size_t element) {
  return {static_cast<std::byte*>(buffer.data) + element * dtype_bytes(buffer.dtype), buffer.dtype};
}

// Hands out parts of an arena that start on cache lines. Run once without memory to learn the size.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  std::byte* take(size_t bytes) {
    std::byte* part = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (bytes + 63) / 64 * 64;
    return part;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

size_t workspace_floats(const DecoderShape& s, size_t n_threads) {
  const size_t rows = s.limits.max_batch_tokens;
  const size_t widest = std::max({qkv_width(s), s.spec.hidden, 2 * s.shard.ffn.size()});
  const size_t deepest =
      std::max({s.spec.hidden, s.shard.ffn.size(), s.shard.heads.size() * s.spec.head_dim});
  return std::max(kernels::gemm_workspace_floats(rows, widest, deepest),
                  kernels::attention_workspace_floats(n_threads, s.shard.heads.size(),
                                                      s.shard.kv_heads.size(), s.spec.head_dim));
}

size_t carve(const DecoderShape& s, size_t n_threads, std::byte* base, Activations& act) {
  const size_t rows = s.limits.max_batch_tokens;
  const DType dtype = s.formats.activations;
  Carver carver(base);
  const auto buffer = [&](size_t width) {
    return Out(carver.take(rows * width * dtype_bytes(dtype)), dtype);
  };
  // An edge's slices are all of the longest one's length: up to one element more a receiver.
  act.residual = Out(carver.take((rows * s.spec.hidden + s.shard.tp) * dtype_bytes(dtype)), dtype);
  act.normed = buffer(s.spec.hidden);
  act.qkv = buffer(qkv_width(s));
  act.attended = buffer(s.shard.heads.size() * s.spec.head_dim);
  act.gate_up = buffer(2 * s.shard.ffn.size());
  act.gated = buffer(s.shard.ffn.size());
  act.partial = reinterpret_cast<float*>(carver.take(rows * s.spec.hidden * sizeof(float)));
  act.workspace =
      reinterpret_cast<float*>(carver.take(workspace_floats(s, n_threads) * sizeof(float)));
  return carver.used();
}

}  // namespace

Activations::Activations(const DecoderShape& shape, size_t n_threads) {
  arena = Pages(carve(shape, n_threads, nullptr, *this));
  carve(shape, n_threads, arena.data(), *this);
}

Decoder::Decoder(const DecoderShape& shape, const StageWeights& weights, KvCache& cache,
                 parallel::Communicator& group, kernels::Stream& stream, StepClock* clock)
    : shape_(shape),
      weights_(weights),
      cache_(cache),
      group_(group),
      stream_(stream),
      clock_(clock),
      act_(shape, stream.pool().n_threads()),
      rope_table_(rope_table(shape.spec.rope, shape.spec.head_dim, shape.limits.context)) {}

void Decoder::embed(std::span<const int32_t> ids) {
  mark(clock_, StepPart::embedding);
  kernels::Embedding args;
  args.table = weights_.embedding;
  args.ids = ids.data();
  args.y = act_.residual;
  args.tokens = ids.size();
  args.hidden = shape_.spec.hidden;
  args.shard_begin = shape_.shard.vocab.begin;
  args.shard_rows = shape_.shard.vocab.size();
  kernels::embedding(args, stream_);
  if (group_.size() == 1) return;
  mark(clock_, StepPart::all_reduce);
  group_.all_reduce(act_.residual.data, ids.size() * args.hidden, act_.residual.dtype, stream_);
}

void Decoder::forward(const kernels::PagedRows& rows) {
  for (size_t i = 0; i < weights_.layers.size(); ++i) layer(i, rows);
}

void Decoder::layer(size_t i, const kernels::PagedRows& rows) {
  const LayerWeights& w = weights_.layers[i];
  const size_t head_columns = shape_.shard.heads.size() * shape_.spec.head_dim;

  begin(i, StepPart::norm);
  normalise(w.input_norm, rows.tokens);
  begin(i, StepPart::qkv);
  product(act_.normed, w.qkv, w.qkv_bias, act_.qkv, qkv_width(shape_), shape_.spec.hidden,
          rows.tokens);
  attend(i, rows);
  add_row_parallel(i, StepPart::o, act_.attended, w.o, w.o_bias, head_columns, rows.tokens);

  begin(i, StepPart::norm);
  normalise(w.post_norm, rows.tokens);
  begin(i, StepPart::ffn);
  product(act_.normed, w.gate_up, w.gate_up_bias, act_.gate_up, 2 * shape_.shard.ffn.size(),
          shape_.spec.hidden, rows.tokens);
  kernels::swiglu<>({act_.gate_up, act_.gated, rows.tokens, shape_.shard.ffn.size()}, stream_);
  add_row_parallel(i, StepPart::ffn, act_.gated, w.down, w.down_bias, shape_.shard.ffn.size(),
                   rows.tokens);
}

// attended = softmax(rot(q) · rot(k)ᵀ / √d) v over the cache, after k and v have joined it.
void Decoder::attend(size_t i, const kernels::PagedRows& rows) {
  const LayerWeights& w = weights_.layers[i];
  const size_t h = shape_.shard.heads.size();
  const size_t kv = shape_.shard.kv_heads.size();
  const size_t d = shape_.spec.head_dim;
  if (w.q_norm) normalise_heads(w.q_norm, 0, h, rows.tokens);
  if (w.k_norm) normalise_heads(w.k_norm, h, kv, rows.tokens);
  rotate(0, h + kv, rows);

  kernels::KvAppend append;
  append.k = from_element(act_.qkv, h * d);
  append.v = from_element(act_.qkv, (h + kv) * d);
  append.cache = cache_.layer(i);
  append.rows = rows;
  append.n_kv_heads = kv;
  append.head_dim = d;
  append.stride = qkv_width(shape_);
  kernels::kv_append(append, stream_);

  begin(i, StepPart::attention);
  const bool windowed = shape_.layers.begin + i >= shape_.spec.full_attention_layers;
  kernels::Attention args;
  args.q = act_.qkv;
  args.cache = cache_.layer(i);
  args.rows = rows;
  args.out = act_.attended;
  args.n_heads = h;
  args.n_kv_heads = kv;
  args.head_dim = d;
  args.q_stride = qkv_width(shape_);
  args.window = windowed ? shape_.spec.sliding_window : 0;
  args.scale = 1.0f / std::sqrt(static_cast<float>(d));
  args.workspace = act_.workspace;
  kernels::attention<>(args, stream_);
}

// normed = x / rms(x) · weight
void Decoder::normalise(In weight, size_t tokens) {
  kernels::RmsNorm args;
  args.x = act_.residual;
  args.weight = weight;
  args.y = act_.normed;
  args.tokens = tokens;
  args.width = args.x_stride = args.y_stride = shape_.spec.hidden;
  args.eps = static_cast<float>(shape_.spec.norm_eps);
  kernels::rms_norm<>(args, stream_);
}

void Decoder::normalise_heads(In weight, size_t first_head, size_t n_heads, size_t tokens) {
  kernels::RmsNorm args;
  args.y = from_element(act_.qkv, first_head * shape_.spec.head_dim);
  args.x = args.y;
  args.weight = weight;
  args.tokens = tokens;
  args.groups = n_heads;
  args.width = shape_.spec.head_dim;
  args.x_stride = args.y_stride = qkv_width(shape_);
  args.eps = static_cast<float>(shape_.spec.norm_eps);
  kernels::rms_norm<>(args, stream_);
}

void Decoder::rotate(size_t first_head, size_t n_heads, const kernels::PagedRows& rows) {
  kernels::Rope args;
  args.x = from_element(act_.qkv, first_head * shape_.spec.head_dim);
  args.table = rope_table_.data();
  args.positions = rows.positions;
  args.tokens = rows.tokens;
  args.n_heads = n_heads;
  args.head_dim = shape_.spec.head_dim;
  args.stride = qkv_width(shape_);
  kernels::rope(args, stream_);
}

// y = x wᵀ + bias, whole dot products: the same on one rank or many.
void Decoder::product(In x, In w, In bias, Out y, size_t n, size_t k, size_t tokens) {
  kernels::Gemm args;
  args.x = x;
  args.w = w;
  args.bias = bias;
  args.y = y;
  args.tokens = tokens;
  args.n = args.y_stride = n;
  args.k = args.x_stride = k;
  args.invariant = shape_.invariant;
  args.workspace = act_.workspace;
  kernels::gemm<>(args, stream_);
}

// residual += x wᵀ + bias, where x and w hold this rank's columns only: chunk sums first inside the
// rank, then over ranks, by one tree.
void Decoder::add_row_parallel(size_t i, StepPart part, In x, In w, In bias, size_t k,
                               size_t tokens) {
  begin(i, part);
  const size_t hidden = shape_.spec.hidden;
  kernels::Gemm args;
  args.x = x;
  args.w = w;
  args.y = Out(act_.partial);
  args.tokens = tokens;
  args.n = args.y_stride = hidden;
  args.k = args.x_stride = k;
  args.n_chunks = shape_.invariant ? shape_.shard.n_chunks : 1;
  args.invariant = shape_.invariant;
  args.workspace = act_.workspace;
  kernels::gemm<>(args, stream_);
  if (group_.size() > 1) {
    begin(i, StepPart::all_reduce);
    if (shape_.invariant)
      group_.all_reduce_tree(act_.partial, tokens * hidden, stream_);
    else
      group_.all_reduce(act_.partial, tokens * hidden, DType::f32, stream_);
    begin(i, part);
  }
  kernels::residual_add({act_.partial, bias, act_.residual, tokens, hidden}, stream_);
}

}  // namespace weft::runtime
