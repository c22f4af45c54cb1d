// The GPU's kernels, as the decoder and the sampler enqueue them, in graphs of many calls.
#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/gpu_attention.h"
#include "kernels/gpu_device.h"
#include "kernels/gpu_embedding.h"
#include "kernels/gpu_residual_add.h"
#include "kernels/gpu_rms_norm.h"
#include "kernels/gpu_sampling.h"
#include "kernels/gpu_swiglu.h"
#include "launch/kernel_rows.h"
#include "runtime/gpu_products.h"
#include "runtime/gpu_synthesis.h"
#include "runtime/kv_cache.h"
#include "runtime/rope_table.h"

namespace weft::launch {
namespace {

using kernels::GpuBuffer;
using kernels::GpuProduct;
using kernels::In;
using kernels::Out;

constexpr size_t kWeightBytes = size_t{1} << 30;  // no cache holds it
constexpr size_t kCacheBytes = size_t{512} << 20;
constexpr double kEnoughUs = 3'000;  // of a graph
constexpr size_t kFewestCalls = 4, kMostCalls = 256;
constexpr size_t kReplays = 9;
constexpr double kWarmUpMs = 10;  // clocks have risen after a while of work

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class GpuKernels final : public KernelSet {
 public:
  GpuKernels(const KernelShapes& shapes, const std::vector<KernelWork>& works,
             kernels::ThreadPool& pool);

  Ceilings ceilings() override { return ceilings_; }
  double time_us(KernelOp op, const KernelWork& work) override;

 private:
  // What a batch's rows are on the GPU.
  struct Rows {
    KernelRows host;
    GpuBuffer positions, sequence, table, ids, tiles;
    kernels::GpuRows rows;
    kernels::GpuRowCounts counts;
  };

  DType dtype() const { return shapes_.spec.dtype; }
  size_t each() const { return dtype_bytes(dtype()); }
  Out elements(const GpuBuffer& buffer) const { return {buffer.data(), dtype()}; }
  GpuBuffer noise(size_t bytes, DType dtype);
  runtime::DecoderShape decoder_shape() const;
  Rows rows_of(const KernelWork& work);
  runtime::KvCache cache_of(const KernelRows& rows, size_t& n_layers) const;
  // Of `call`, given its number.
  template <class Call>
  double timed(Call call);
  double graph_us(size_t n_calls, const std::function<void(size_t)>& call);
  double product_us(KernelOp op, const KernelWork& work);
  double rope_us(const Rows& rows);
  double attention_us(const Rows& rows, const KernelWork& work);
  double sampling_us(const KernelWork& work);

  KernelShapes shapes_;
  KernelRoom room_;
  Ceilings ceilings_;
  kernels::GpuStream gpu_;
  kernels::Stream stream_;
  GpuBuffer weights_, x_, y_, sums_, logits_, cache_, rope_, attention_, sampling_, tokens_;
  runtime::GpuArena arena_;
  std::optional<runtime::GpuProducts> products_;
};

GpuBuffer GpuKernels::noise(size_t bytes, DType dtype) {
  GpuBuffer buffer((bytes + 255) / 256 * 256);
  runtime::make_noise_on_gpu(1, buffer.data(), buffer.bytes() / dtype_bytes(dtype), dtype, stream_);
  return buffer;
}

runtime::DecoderShape GpuKernels::decoder_shape() const {
  runtime::DecoderShape shape;
  shape.spec = shapes_.spec;
  shape.shard = shapes_.shard;
  shape.formats = {dtype(), dtype(), dtype(), dtype()};
  shape.layers = {0, shapes_.spec.n_layers};
  shape.invariant = false;
  return shape;
}

GpuKernels::GpuKernels(const KernelShapes& shapes, const std::vector<KernelWork>& works,
                       kernels::ThreadPool& pool)
    : shapes_(shapes),
      room_(shapes, works),
      ceilings_(measure_ceilings()),  // before the memory is taken
      stream_(pool, gpu_.get()) {
  const size_t widest = std::max(
      {shapes.spec.hidden, shapes.head_columns(), shapes.qkv_width(), 2 * shapes.shard.ffn.size()});
  weights_ = noise(std::max(kWeightBytes, room_.matrix_bytes + 256), dtype());
  x_ = noise(room_.rows * widest * each(), dtype());
  y_ = noise(room_.rows * widest * each(), dtype());
  sums_ = noise(room_.rows * shapes.spec.hidden * sizeof(float), DType::f32);
  logits_ = noise(room_.sampled * shapes.shard.vocab.size() * sizeof(float), DType::f32);
  const size_t layer_bytes =
      room_.kv_tokens * 2 * shapes.shard.kv_heads.size() * shapes.spec.head_dim * each();
  cache_ = noise(std::max(kCacheBytes, layer_bytes), dtype());
  const std::vector<float> table =
      runtime::rope_table(shapes.spec.rope, shapes.spec.head_dim, room_.context);
  rope_ = GpuBuffer(table.size() * sizeof(float));
  kernels::copy_bytes(rope_.data(), table.data(), rope_.bytes(), gpu_);
  attention_ = GpuBuffer(kernels::gpu_attention_workspace_bytes(
      std::max(room_.sampled, kernels::kGpuShortestRun), room_.kv_tokens, shapes.shard.heads.size(),
      shapes.spec.head_dim));
  sampling_ =
      GpuBuffer(kernels::gpu_sample_workspace_bytes(room_.sampled, shapes.shard.vocab.size()));
  kernels::clear_bytes(sampling_.data(), sampling_.bytes(), gpu_);
  tokens_ = GpuBuffer(room_.sampled * sizeof(int32_t));
  runtime::GpuArena counted;
  const runtime::GpuProducts sizes(decoder_shape(), room_.rows, room_.sampled, counted);
  arena_ = runtime::GpuArena(counted.used());
  products_.emplace(decoder_shape(), room_.rows, room_.sampled, arena_);
  gpu_.synchronise();
}

// A mean over the calls of a graph, the median of its replays.
double GpuKernels::graph_us(size_t n_calls, const std::function<void(size_t)>& call) {
  const kernels::GpuGraph graph(gpu_, [&] {
    for (size_t i = 0; i < n_calls; ++i) call(i);
  });
  kernels::GpuEvent begin(true), end(true);
  std::vector<double> times;
  double passed_ms = 0;
  while (times.size() < kReplays) {
    begin.record(gpu_);
    graph.launch(gpu_);
    end.record(gpu_);
    end.synchronise();
    const double ms = end.ms_since(begin);
    if (passed_ms > kWarmUpMs) times.push_back(ms * 1e3);
    passed_ms += ms;
  }
  return median(std::move(times)) / static_cast<double>(n_calls);
}

template <class Call>
double GpuKernels::timed(Call call) {
  call(0);  // loads the kernel, which a recording stream may not
  gpu_.synchronise();
  const double us = graph_us(kFewestCalls, call);
  const auto n = static_cast<size_t>(kEnoughUs / us);
  if (n <= kFewestCalls) return us;
  return graph_us(std::min(n, kMostCalls), call);
}

double GpuKernels::product_us(KernelOp op, const KernelWork& work) {
  const ProductSize size = product_size(shapes_, op);
  GpuProduct args;
  args.x = elements(x_);
  args.tokens = op == KernelOp::head ? work.sampled() : work.rows();
  args.n = args.y_stride = size.outputs;
  args.k = args.x_stride = size.inputs;
  args.y = elements(y_);
  WeightTurn turn(weights_.data(), weights_.bytes(), size.outputs * size.inputs * each());
  args.w = In(turn.next(), dtype());
  if (op == KernelOp::o || op == KernelOp::down) {
    args.epilogue = GpuProduct::kAddResidual;
    args.residual = args.y;
  } else {
    args.norm_weight = In(weights_.data(), dtype());
  }
  if (op == KernelOp::gate_up) {
    args.epilogue = GpuProduct::kSwiglu;
    args.y_stride = shapes_.shard.ffn.size();
  }
  if (op == KernelOp::head) args.y = Out(reinterpret_cast<float*>(logits_.data()));
  const size_t most = op == KernelOp::head ? room_.sampled : room_.rows;
  products_->measure(args, most, gpu_);
  const double us = timed([&](size_t) {
    args.w = In(turn.next(), dtype());
    products_->run(args, gpu_);
  });
  runtime::make_noise_on_gpu(1, y_.data(), y_.bytes() / each(), dtype(), stream_);
  runtime::make_noise_on_gpu(1, logits_.data(), logits_.bytes() / 4, DType::f32, stream_);
  return us;
}

GpuKernels::Rows GpuKernels::rows_of(const KernelWork& work) {
  Rows made{KernelRows(shapes_, work), {}, {}, {}, {}, {}, {}, {}};
  const auto upload = [&](const void* data, size_t bytes) {
    GpuBuffer buffer(std::max<size_t>(bytes, 16));
    kernels::copy_bytes(buffer.data(), data, bytes, gpu_);
    gpu_.synchronise();
    return buffer;
  };
  const auto numbers = [&](const std::vector<int32_t>& values) {
    return upload(values.data(), values.size() * sizeof(int32_t));
  };
  std::vector<int32_t> single(work.rows());
  std::vector<kernels::GpuTile> tiles(kernels::gpu_tiles_at_most(work.rows()));
  made.counts = kernels::gpu_attention_rows(made.host.paged(), single, tiles);
  made.positions = numbers(made.host.positions);
  made.sequence = numbers(made.host.sequence);
  made.table = numbers(made.host.table);
  made.ids = numbers(made.host.ids);
  made.tiles = upload(tiles.data(), tiles.size() * sizeof(kernels::GpuTile));
  const auto at = [](const GpuBuffer& buffer) {
    return reinterpret_cast<const int32_t*>(buffer.data());
  };
  made.rows = {at(made.positions), at(made.sequence), at(made.table), made.host.columns,
               work.rows()};
  return made;
}

// As many layers as fit, so that each finds its keys and values in memory.
runtime::KvCache GpuKernels::cache_of(const KernelRows& rows, size_t& n_layers) const {
  const runtime::DecoderShape shape = decoder_shape();
  const size_t kv = shapes_.shard.kv_heads.size(), d = shapes_.spec.head_dim;
  const size_t layer = runtime::KvCache::bytes(shape.formats, rows.n_blocks, 1, kv, d);
  n_layers = std::max<size_t>(1, cache_.bytes() / layer);
  return {shape.formats, n_layers, kv, d, cache_.data()};
}

double GpuKernels::rope_us(const Rows& rows) {
  size_t n_layers = 0;
  const runtime::KvCache cache = cache_of(rows.host, n_layers);
  kernels::GpuQkvPost args;
  args.qkv = elements(y_);
  if (shapes_.spec.qk_norm) args.q_norm = args.k_norm = In(weights_.data(), dtype());
  args.rope = reinterpret_cast<const float*>(rope_.data());
  args.rows = rows.rows;
  args.n_heads = shapes_.shard.heads.size();
  args.n_kv_heads = shapes_.shard.kv_heads.size();
  args.head_dim = shapes_.spec.head_dim;
  args.stride = shapes_.qkv_width();
  return timed([&](size_t i) {
    args.cache = cache.layer(i % n_layers);
    kernels::gpu_qkv_post(args, gpu_);
  });
}

double GpuKernels::attention_us(const Rows& rows, const KernelWork& work) {
  size_t n_layers = 0;
  const runtime::KvCache cache = cache_of(rows.host, n_layers);
  kernels::GpuAttention args;
  args.q = elements(y_);
  args.rows = rows.rows;
  args.out = elements(x_);
  args.n_single = rows.counts.n_single;
  args.tiles = reinterpret_cast<const kernels::GpuTile*>(rows.tiles.data());
  args.n_tiles = rows.counts.n_tiles;
  args.max_context = work.tokens;
  args.n_heads = shapes_.shard.heads.size();
  args.n_kv_heads = shapes_.shard.kv_heads.size();
  args.head_dim = shapes_.spec.head_dim;
  args.q_stride = shapes_.qkv_width();
  args.scale = 1 / std::sqrt(static_cast<float>(args.head_dim));
  args.workspace = attention_.data();
  return timed([&](size_t i) {
    args.cache = cache.layer(i % n_layers);
    kernels::gpu_attention(args, gpu_);
  });
}

double GpuKernels::sampling_us(const KernelWork& work) {
  kernels::GpuSample args;
  args.logits = reinterpret_cast<const float*>(logits_.data());
  args.rows = work.sampled();
  args.shard_vocab = args.vocab = shapes_.shard.vocab.size();
  args.token = reinterpret_cast<int32_t*>(tokens_.data());
  args.workspace = sampling_.data();
  return timed([&](size_t) { kernels::gpu_sample(args, gpu_); });
}

double GpuKernels::time_us(KernelOp op, const KernelWork& work) {
  const Rows rows = rows_of(work);
  const size_t hidden = shapes_.spec.hidden, ffn = shapes_.shard.ffn.size();
  switch (op) {
    case KernelOp::embedding: {
      kernels::GpuEmbedding args;
      args.table = In(weights_.data(), dtype());
      args.ids = reinterpret_cast<const int32_t*>(rows.ids.data());
      args.y = elements(y_);
      args.tokens = work.rows();
      args.hidden = hidden;
      args.shard_rows = shapes_.shard.vocab.size();
      return timed([&](size_t) { kernels::gpu_embedding(args, gpu_); });
    }
    case KernelOp::norm: {
      kernels::GpuRmsNorm args;
      args.x = elements(x_);
      args.weight = In(weights_.data(), dtype());
      args.y = elements(y_);
      args.tokens = work.rows();
      args.width = args.x_stride = args.y_stride = hidden;
      return timed([&](size_t) { kernels::gpu_rms_norm(args, gpu_); });
    }
    case KernelOp::rope:
      return rope_us(rows);
    case KernelOp::attention:
      return attention_us(rows, work);
    case KernelOp::swiglu: {
      const kernels::GpuSwiGlu args{elements(y_), elements(x_), work.rows(), ffn, ffn, false};
      return timed([&](size_t) { kernels::gpu_swiglu(args, gpu_); });
    }
    case KernelOp::residual: {
      kernels::GpuResidualAdd args;
      args.partial = reinterpret_cast<const float*>(sums_.data());
      args.residual = elements(y_);
      args.tokens = work.rows();
      args.hidden = hidden;
      return timed([&](size_t) { kernels::gpu_residual_add(args, gpu_); });
    }
    case KernelOp::sampling:
      return sampling_us(work);
    default:
      return product_us(op, work);
  }
}

}  // namespace

std::unique_ptr<KernelSet> make_gpu_kernels(const KernelShapes& shapes,
                                            const std::vector<KernelWork>& works,
                                            kernels::ThreadPool& pool) {
  return std::make_unique<GpuKernels>(shapes, works, pool);
}

}  // namespace weft::launch
