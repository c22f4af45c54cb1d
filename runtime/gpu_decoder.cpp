// A layer in six launches: QKV with its norm; QK norm, RoPE and the cache; attention; O onto the
// residual stream; gate and up with their norm and SwiGLU; down onto the residual stream. In a
// decode step attention does what stands before it, and few tokens' norms are part of the products.
#include "runtime/gpu_decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/gpu_embedding.h"
#include "kernels/gpu_residual_add.h"
#include "kernels/gpu_rows.h"
#include "runtime/gpu_synthesis.h"
#include "runtime/rope_table.h"

namespace weft::runtime {
namespace {

using kernels::GpuProduct;
using kernels::In;

size_t qkv_width(const DecoderShape& s) {
  return (s.shard.heads.size() + 2 * s.shard.kv_heads.size()) * s.spec.head_dim;
}

// Rows that attention takes one by one: a graph's, or the few rows of each sequence's short chunk.
size_t most_single_rows(const planner::Limits& limits) {
  const size_t most = limits.max_sequences * (kernels::kGpuShortestRun - 1);
  return std::max(std::min(limits.max_batch_tokens, most), 2 * limits.max_sequences);
}

size_t attention_bytes(const DecoderShape& s) {
  const size_t rows = most_single_rows(s.limits);
  const size_t cached = s.limits.kv_blocks * planner::kKvBlockTokens;
  const size_t positions =
      std::min(rows * s.limits.context, (kernels::kGpuShortestRun - 1) * cached + rows * 64);
  return kernels::gpu_attention_workspace_bytes(rows, positions, s.shard.heads.size(),
                                                s.spec.head_dim);
}

const float* upload_rope_table(const DecoderShape& s, GpuArena& arena, kernels::Stream& stream) {
  float* place = arena.take_of<float>(s.limits.context * s.spec.head_dim);
  if (place == nullptr) return nullptr;
  const std::vector<float> table = rope_table(s.spec.rope, s.spec.head_dim, s.limits.context);
  kernels::copy_bytes(place, table.data(), table.size() * sizeof(float), stream.gpu());
  kernels::synchronise(stream.gpu());
  return place;
}

GpuActivations take_activations(const DecoderShape& s, GpuArena& arena, kernels::Stream& stream) {
  const size_t rows = GpuDecoder::max_rows(s.limits);
  const DType dtype = s.formats.activations;
  GpuActivations act;
  act.residual = arena.take_elements(rows * s.spec.hidden + s.shard.tp, dtype);
  act.qkv = arena.take_elements(rows * qkv_width(s), dtype);
  act.attended = arena.take_elements(rows * s.shard.heads.size() * s.spec.head_dim, dtype);
  act.gated = arena.take_elements(rows * s.shard.ffn.size(), dtype);
  act.scaled = arena.take_elements(kernels::kStreamTokens * s.spec.hidden, dtype);
  act.squares = arena.take_of<float>(kernels::kMaxNormParts * kernels::kStreamTokens);
  if (s.shard.tp > 1) act.partial = arena.take_of<float>(rows * s.spec.hidden);
  act.attention = arena.take(attention_bytes(s));
  act.rope_table = upload_rope_table(s, arena, stream);
  return act;
}

}  // namespace

size_t GpuDecoder::max_rows(const planner::Limits& limits) {
  // A graph's rows may be twice as many as the sequences that it serves.
  return std::max(limits.max_batch_tokens, 2 * limits.max_sequences);
}

GpuDecoder::GpuDecoder(const DecoderShape& shape, const StageWeights& weights, const KvCache& cache,
                       parallel::Communicator& group, GpuProducts& products, GpuArena& arena,
                       kernels::Stream& stream, StepClock* clock)
    : shape_(shape),
      weights_(weights),
      cache_(cache),
      group_(group),
      products_(products),
      stream_(stream),
      clock_(clock),
      act_(take_activations(shape, arena, stream)),
      stream_rows_(act_.residual) {}

void GpuDecoder::embed(const GpuPass& pass) {
  mark(clock_, StepPart::embedding);
  kernels::GpuEmbedding args;
  args.table = weights_.embedding;
  args.ids = pass.ids;
  args.y = act_.residual;
  args.tokens = pass.rows.tokens;
  args.hidden = shape_.spec.hidden;
  args.shard_begin = shape_.shard.vocab.begin;
  args.shard_rows = shape_.shard.vocab.size();
  kernels::gpu_embedding(args, stream_.gpu());
  if (group_.size() == 1) return;
  mark(clock_, StepPart::all_reduce);
  group_.all_reduce(act_.residual.data, args.tokens * args.hidden, act_.residual.dtype, stream_);
}

void GpuDecoder::forward(const GpuPass& pass) {
  norm_parts_ = 0;
  stream_rows_ = act_.residual;
  for (size_t i = 0; i < weights_.layers.size(); ++i) layer(i, pass);
}

GpuProduct GpuDecoder::qkv_product(size_t i, size_t tokens) const {
  const LayerWeights& w = weights_.layers[i];
  GpuProduct args;
  args.x = act_.residual;
  args.w = w.qkv;
  args.bias = w.qkv_bias;
  args.norm_weight = w.input_norm;
  args.eps = static_cast<float>(shape_.spec.norm_eps);
  args.y = act_.qkv;
  args.epilogue = GpuProduct::kStore;
  args.tokens = tokens;
  args.n = args.y_stride = qkv_width(shape_);
  args.k = args.x_stride = shape_.spec.hidden;
  return args;
}

GpuProduct GpuDecoder::gate_up_product(size_t i, size_t tokens) const {
  const LayerWeights& w = weights_.layers[i];
  GpuProduct args;
  args.x = stream_rows_;
  args.w = w.gate_up;
  args.bias = w.gate_up_bias;
  args.norm_weight = w.post_norm;
  args.eps = static_cast<float>(shape_.spec.norm_eps);
  args.y = act_.gated;
  args.epilogue = GpuProduct::kSwiglu;
  args.tokens = tokens;
  args.n = 2 * shape_.shard.ffn.size();
  args.y_stride = shape_.shard.ffn.size();
  args.k = args.x_stride = shape_.spec.hidden;
  return args;
}

// Onto the residual stream on one rank; a part of the sum, in float32, on several.
GpuProduct GpuDecoder::row_parallel_product(In x, In w, In bias, size_t k, size_t tokens) const {
  GpuProduct args;
  args.x = x;
  args.w = w;
  args.tokens = tokens;
  args.n = args.y_stride = shape_.spec.hidden;
  args.k = args.x_stride = k;
  args.n_chunks = shape_.invariant ? shape_.shard.n_chunks : 1;
  if (shape_.shard.tp > 1) {
    args.y = kernels::Out(act_.partial);
    args.epilogue = GpuProduct::kPartial;
    return args;
  }
  args.bias = bias;
  args.residual = args.y = stream_rows_;
  args.epilogue = GpuProduct::kAddResidual;
  return args;
}

void GpuDecoder::measure_products() {
  if (weights_.layers.empty()) return;
  const LayerWeights& w = weights_.layers.front();
  const size_t rows = max_rows(shape_.limits),
               h_d = shape_.shard.heads.size() * shape_.spec.head_dim;
  const auto noise = [&](kernels::Out buffer, size_t width) {
    make_noise_on_gpu(1, buffer.data, rows * width, buffer.dtype, stream_);
  };
  noise(act_.residual, shape_.spec.hidden);
  noise(act_.attended, h_d);
  noise(act_.gated, shape_.shard.ffn.size());
  const size_t f = shape_.shard.ffn.size();
  products_.measure(qkv_product(0, rows), rows, stream_.gpu());
  products_.measure(gate_up_product(0, rows), rows, stream_.gpu());
  products_.measure(row_parallel_product(act_.attended, w.o, w.o_bias, h_d, rows), rows,
                    stream_.gpu());
  products_.measure(row_parallel_product(act_.gated, w.down, w.down_bias, f, rows), rows,
                    stream_.gpu());
}

void GpuDecoder::layer(size_t i, const GpuPass& pass) {
  const LayerWeights& w = weights_.layers[i];
  size_t tokens = pass.rows.tokens;
  const bool last = i + 1 == weights_.layers.size(), few = last && narrows(pass);
  begin(i, StepPart::qkv);
  products_.run(with_deferred_norm(qkv_product(i, tokens)), stream_.gpu());
  attend(i, pass, few);
  if (few && pass.n_wanted == 0) return;
  begin(i, StepPart::o);
  In attended = act_.attended;
  if (few) {
    attended = narrow(pass);
    tokens = pass.n_wanted;
  }
  add_row_parallel(i, StepPart::o, attended, w.o, w.o_bias,
                   shape_.shard.heads.size() * shape_.spec.head_dim, tokens, w.post_norm);
  begin(i, StepPart::ffn);
  products_.run(with_deferred_norm(gate_up_product(i, tokens)), stream_.gpu());
  add_row_parallel(i, StepPart::ffn, act_.gated, w.down, w.down_bias, shape_.shard.ffn.size(),
                   tokens, last ? In{} : weights_.layers[i + 1].input_norm);
}

// The same product of rows that the last one has scaled, where it has.
GpuProduct GpuDecoder::with_deferred_norm(GpuProduct product) {
  if (norm_parts_ == 0) return product;
  product.x = act_.scaled;
  product.x_stride = product.k;
  product.norm_weight = {};
  product.x_squares = act_.squares;
  product.x_parts = norm_parts_;
  norm_parts_ = 0;
  return product;
}

// Not where the buffers that are free by then have no room for the wanted rows.
bool GpuDecoder::narrows(const GpuPass& pass) const {
  const size_t rows = max_rows(shape_.limits);
  const size_t h_d = shape_.shard.heads.size() * shape_.spec.head_dim;
  return pass.wanted != nullptr && pass.n_wanted < pass.rows.tokens &&
         pass.n_wanted * shape_.spec.hidden <= rows * qkv_width(shape_) &&
         pass.n_wanted * h_d <= rows * shape_.shard.ffn.size();
}

// The wanted rows of the residual stream move to where q, k and v were, and those of what
// attention gave to the returned buffer.
In GpuDecoder::narrow(const GpuPass& pass) {
  const size_t h_d = shape_.shard.heads.size() * shape_.spec.head_dim;
  const size_t n = pass.n_wanted, hidden = shape_.spec.hidden;
  kernels::gpu_gather_rows({act_.attended, pass.wanted, act_.gated, n, h_d}, stream_.gpu());
  kernels::gpu_gather_rows({act_.residual, pass.wanted, act_.qkv, n, hidden}, stream_.gpu());
  stream_rows_ = act_.qkv;
  return act_.gated;
}

// attended = softmax(rot(q) · rot(k)ᵀ / √d) v over the cache, after k and v have joined it.
// Where the pass narrows, only its wanted rows of it.
void GpuDecoder::attend(size_t i, const GpuPass& pass, bool narrows) {
  const LayerWeights& w = weights_.layers[i];
  const size_t h = shape_.shard.heads.size(), kv = shape_.shard.kv_heads.size();
  const size_t d = shape_.spec.head_dim;

  const bool windowed = shape_.layers.begin + i >= shape_.spec.full_attention_layers;
  kernels::GpuAttention args;
  args.q = act_.qkv;
  args.cache = cache_.layer(i);
  args.rows = pass.rows;
  args.out = act_.attended;
  args.single = pass.single;
  args.n_single = pass.counts.n_single;
  args.tiles = pass.tiles;
  args.n_tiles = pass.counts.n_tiles;
  args.max_context = pass.max_context;
  args.n_heads = h;
  args.n_kv_heads = kv;
  args.head_dim = d;
  args.q_stride = qkv_width(shape_);
  args.window = windowed ? shape_.spec.sliding_window : 0;
  args.scale = 1.0f / std::sqrt(static_cast<float>(d));
  args.invariant = shape_.invariant;
  args.dependent_launch = true;
  args.workspace = act_.attention;
  if (pass.single == nullptr && !w.q_norm && !w.k_norm && kernels::gpu_attention_rotates(args)) {
    args.rope = act_.rope_table;
    begin(i, StepPart::attention);
    return kernels::gpu_attention(args, stream_.gpu());
  }

  kernels::GpuQkvPost post;
  post.qkv = act_.qkv;
  post.q_norm = w.q_norm;
  post.k_norm = w.k_norm;
  post.eps = static_cast<float>(shape_.spec.norm_eps);
  post.rope = act_.rope_table;
  post.cache = cache_.layer(i);
  post.rows = pass.rows;
  post.n_heads = h;
  post.n_kv_heads = kv;
  post.head_dim = d;
  post.stride = qkv_width(shape_);
  post.dependent_launch = true;
  if (narrows) {
    args.single = pass.wanted;
    args.n_single = pass.n_wanted;
    args.n_tiles = 0;
  } else if (!w.q_norm && kernels::gpu_attention_rotates_tiles(args)) {
    args.tile_rope = act_.rope_table;
    post.leaves_q = true;
  }
  kernels::gpu_qkv_post(post, stream_.gpu());
  begin(i, StepPart::attention);
  kernels::gpu_attention(args, stream_.gpu());
}

// residual += x wᵀ + bias, where x and w hold this rank's columns only: on one rank in the product
// itself, else chunk sums inside the rank, then over ranks, by one tree.
void GpuDecoder::add_row_parallel(size_t i, StepPart part, In x, In w, In bias, size_t k,
                                  size_t tokens, In next_norm) {
  const size_t hidden = shape_.spec.hidden;
  GpuProduct product = row_parallel_product(x, w, bias, k, tokens);
  if (next_norm.dtype == DType::bf16 && hidden % 8 == 0)
    product.defer = {next_norm, act_.scaled, act_.squares};
  norm_parts_ = products_.run(product, stream_.gpu());
  if (group_.size() == 1) return;
  begin(i, StepPart::all_reduce);
  parallel::ResidualSum sum;
  sum.partial = act_.partial;
  sum.bias = bias;
  sum.residual = stream_rows_;
  sum.tokens = tokens;
  sum.hidden = hidden;
  sum.dependent_launch = true;
  if (group_.all_reduce_residual(sum, stream_)) return;
  if (shape_.invariant)
    group_.all_reduce_tree(act_.partial, tokens * hidden, stream_);
  else
    group_.all_reduce(act_.partial, tokens * hidden, DType::f32, stream_);
  begin(i, part);
  kernels::GpuResidualAdd add;
  add.partial = act_.partial;
  add.bias = bias;
  add.residual = stream_rows_;
  add.tokens = tokens;
  add.hidden = hidden;
  kernels::gpu_residual_add(add, stream_.gpu());
}

}  // namespace weft::runtime
