// The CPU's kernels, as the decoder calls them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "kernels/swiglu.h"
#include "launch/kernel_rows.h"
#include "runtime/base/pages.h"
#include "runtime/kv_cache.h"
#include "runtime/rope_table.h"
#include "runtime/synthetic.h"

namespace weft::launch {

KernelRoom::KernelRoom(const KernelShapes& shapes, const std::vector<KernelWork>& works) {
  for (const KernelWork& work : works) {
    rows = std::max(rows, work.rows());
    sampled = std::max(sampled, work.sampled());
    context = std::max(context, work.tokens);
    const size_t blocks = (work.tokens + planner::kKvBlockTokens - 1) / planner::kKvBlockTokens;
    kv_tokens = std::max(kv_tokens, work.batch * blocks * planner::kKvBlockTokens);
  }
  for (const KernelOp op :
       {KernelOp::qkv, KernelOp::o, KernelOp::gate_up, KernelOp::down, KernelOp::head}) {
    const ProductSize size = product_size(shapes, op);
    matrix_bytes =
        std::max(matrix_bytes, size.outputs * size.inputs * dtype_bytes(shapes.spec.dtype));
  }
}

namespace {

using kernels::In;
using kernels::Out;

constexpr size_t kWeightBytes = size_t{256} << 20;  // no cache holds it
constexpr size_t kFillBytes = size_t{8} << 20;
constexpr size_t kCeilingBytes = size_t{512} << 20;
constexpr size_t kSide = 1024;  // of the product that the ceiling is taken from
constexpr size_t kGrain = size_t{1} << 20;

// Numbers of a model's scale in all of it, repeated.
void fill(const Pages& pages, DType dtype) {
  const size_t n = std::min(pages.bytes(), kFillBytes) / dtype_bytes(dtype);
  const size_t bytes = n * dtype_bytes(dtype);
  runtime::make_elements(runtime::synthetic_key(7, "kernels"), {0, 1.0f / (1 << 20)}, 0, n,
                         pages.data(), dtype);
  for (size_t at = bytes; at < pages.bytes(); at += bytes)
    std::memcpy(pages.data() + at, pages.data(), std::min(bytes, pages.bytes() - at));
}

class CpuKernels final : public KernelSet {
 public:
  CpuKernels(const KernelShapes& shapes, const std::vector<KernelWork>& works, const Rig& rig)
      : shapes_(shapes),
        rig_(rig),
        room_(shapes, works),
        weights_(std::max(kWeightBytes, room_.matrix_bytes + 256)),
        x_(buffer(std::max({shapes.spec.hidden, shapes.head_columns(), shapes.shard.ffn.size()}))),
        qkv_(buffer(shapes.qkv_width())),
        gate_up_(buffer(2 * shapes.shard.ffn.size())),
        sums_(room_.rows * shapes.spec.hidden * sizeof(float)),
        logits_(room_.sampled * shapes.shard.vocab.size() * sizeof(float)),
        workspace_(workspace_floats() * sizeof(float)),
        sampling_(kernels::sample_workspace_bytes(shapes.shard.vocab.size(), n_threads())),
        rope_(runtime::rope_table(shapes.spec.rope, shapes.spec.head_dim, room_.context)),
        cache_(formats(), room_.kv_tokens / planner::kKvBlockTokens, 1,
               shapes.shard.kv_heads.size(), shapes.spec.head_dim) {
    for (const Pages* pages : {&weights_, &x_, &qkv_, &gate_up_}) fill(*pages, dtype());
    fill(logits_, DType::f32);
    fill(sums_, DType::f32);
    touch_cache();
  }

  Ceilings ceilings() override;
  double time_us(KernelOp op, const KernelWork& work) override;

 private:
  DType dtype() const { return shapes_.spec.dtype; }
  size_t n_threads() const { return rig_.stream().pool().n_threads(); }
  planner::Formats formats() const { return {dtype(), dtype(), dtype(), dtype()}; }
  Pages buffer(size_t width) const { return Pages(room_.rows * width * dtype_bytes(dtype())); }
  size_t workspace_floats() const;
  void touch_cache();
  Out elements(const Pages& pages) const { return {pages.data(), dtype()}; }
  template <class Call>
  double timed(Call call) const {
    return rig_.time_us([&] { call(); });
  }
  double product_rate(const Pages& memory, DType dtype, bool invariant);
  double product_us(KernelOp op, const KernelWork& work);
  double rope_us(const KernelRows& rows, const KernelWork& work);
  double attention_us(const KernelRows& rows);
  double sampling_us(const KernelWork& work);

  KernelShapes shapes_;
  const Rig& rig_;
  KernelRoom room_;
  Pages weights_, x_, qkv_, gate_up_, sums_, logits_, workspace_, sampling_;
  std::vector<float> rope_;
  runtime::KvCache cache_;
};

size_t CpuKernels::workspace_floats() const {
  size_t most =
      kernels::attention_workspace_floats(n_threads(), shapes_.shard.heads.size(),
                                          shapes_.shard.kv_heads.size(), shapes_.spec.head_dim);
  for (const KernelOp op :
       {KernelOp::qkv, KernelOp::o, KernelOp::gate_up, KernelOp::down, KernelOp::head}) {
    const ProductSize size = product_size(shapes_, op);
    most = std::max(most, kernels::gemm_workspace_floats(room_.rows, size.outputs, size.inputs));
  }
  return std::max(most, kernels::gemm_workspace_floats(kSide, kSide, kSide));
}

// Pages that were never written are all one page of zeros.
void CpuKernels::touch_cache() {
  const size_t bytes =
      runtime::KvCache::bytes(formats(), room_.kv_tokens / planner::kKvBlockTokens, 1,
                              shapes_.shard.kv_heads.size(), shapes_.spec.head_dim);
  std::byte* base = cache_.layer(0).base;
  for (size_t at = 0; at < bytes; at += weights_.bytes())
    std::memcpy(base + at, weights_.data(), std::min(weights_.bytes(), bytes - at));
}

// Of a product that a cache holds; which way is the quickest depends on the processor.
double CpuKernels::product_rate(const Pages& memory, DType dtype, bool invariant) {
  const Pages y(kSide * kSide * sizeof(float));
  kernels::Gemm args;
  args.x = In(memory.data(), dtype);
  args.w = In(memory.data() + memory.bytes() / 2, dtype);
  args.y = Out(reinterpret_cast<float*>(y.data()));
  args.tokens = args.n = args.k = args.x_stride = args.y_stride = kSide;
  args.invariant = invariant;
  args.workspace = reinterpret_cast<float*>(workspace_.data());
  const double us = timed([&] { kernels::gemm<>(args, rig_.stream()); });
  return 2.0 * kSide * kSide * kSide / us * 1e6;
}

Ceilings CpuKernels::ceilings() {
  Ceilings made;
  const Pages memory(kCeilingBytes);
  fill(memory, dtype());
  const double read_us = timed([&] {
    rig_.stream().pool().split(memory.bytes(), kGrain, [&](size_t begin, size_t end) {
      const auto* words = reinterpret_cast<const uint64_t*>(memory.data());
      uint64_t all[8] = {};
      for (size_t i = begin / 8; i + 8 <= end / 8; i += 8)
        for (size_t j = 0; j < 8; ++j) all[j] ^= words[i + j];
      volatile uint64_t kept =
          all[0] ^ all[1] ^ all[2] ^ all[3] ^ all[4] ^ all[5] ^ all[6] ^ all[7];
      (void)kept;
    });
  });
  made.read_bytes_per_s = static_cast<double>(memory.bytes()) / read_us * 1e6;
  made.flops_per_s =
      std::max(product_rate(memory, DType::f32, false), product_rate(memory, DType::bf16, true));
  return made;
}

double CpuKernels::product_us(KernelOp op, const KernelWork& work) {
  const ProductSize size = product_size(shapes_, op);
  const bool row_parallel = op == KernelOp::o || op == KernelOp::down;
  kernels::Gemm args;
  args.x = elements(x_);
  args.tokens = op == KernelOp::head ? work.sampled() : work.rows();
  args.n = args.y_stride = size.outputs;
  args.k = args.x_stride = size.inputs;
  args.n_chunks = row_parallel ? shapes_.shard.n_chunks : 1;
  args.workspace = reinterpret_cast<float*>(workspace_.data());
  args.y = op == KernelOp::head  ? Out(reinterpret_cast<float*>(logits_.data()))
           : row_parallel        ? Out(reinterpret_cast<float*>(sums_.data()))
           : op == KernelOp::qkv ? elements(qkv_)
                                 : elements(gate_up_);
  WeightTurn turn(weights_.data(), weights_.bytes(),
                  size.outputs * size.inputs * dtype_bytes(dtype()));
  const double us = timed([&] {
    args.w = In(turn.next(), dtype());
    kernels::gemm<>(args, rig_.stream());
  });
  fill(qkv_, dtype());  // what comes after reads numbers of any product's scale
  fill(gate_up_, dtype());
  fill(logits_, DType::f32);
  return us;
}

double CpuKernels::rope_us(const KernelRows& rows, const KernelWork& work) {
  const size_t h = shapes_.shard.heads.size(), kv = shapes_.shard.kv_heads.size();
  const size_t d = shapes_.spec.head_dim, width = shapes_.qkv_width(), each = dtype_bytes(dtype());
  kernels::RmsNorm norm;
  norm.x = norm.y = elements(qkv_);
  norm.weight = In(weights_.data(), dtype());
  norm.tokens = work.rows();
  norm.groups = h + kv;
  norm.width = d;
  norm.x_stride = norm.y_stride = width;
  kernels::Rope rope;
  rope.x = elements(qkv_);
  rope.table = rope_.data();
  rope.positions = rows.positions.data();
  rope.tokens = work.rows();
  rope.n_heads = h + kv;
  rope.head_dim = d;
  rope.stride = width;
  kernels::KvAppend append;
  append.k = In(qkv_.data() + h * d * each, dtype());
  append.v = In(qkv_.data() + (h + kv) * d * each, dtype());
  append.cache = cache_.layer(0);
  append.rows = rows.paged();
  append.n_kv_heads = kv;
  append.head_dim = d;
  append.stride = width;
  return timed([&] {
    if (shapes_.spec.qk_norm) kernels::rms_norm<>(norm, rig_.stream());
    kernels::rope(rope, rig_.stream());
    kernels::kv_append(append, rig_.stream());
  });
}

double CpuKernels::attention_us(const KernelRows& rows) {
  kernels::Attention args;
  args.q = elements(qkv_);
  args.cache = cache_.layer(0);
  args.rows = rows.paged();
  args.out = elements(x_);
  args.n_heads = shapes_.shard.heads.size();
  args.n_kv_heads = shapes_.shard.kv_heads.size();
  args.head_dim = shapes_.spec.head_dim;
  args.q_stride = shapes_.qkv_width();
  args.scale = 1 / std::sqrt(static_cast<float>(args.head_dim));
  args.workspace = reinterpret_cast<float*>(workspace_.data());
  return timed([&] { kernels::attention<>(args, rig_.stream()); });
}

double CpuKernels::sampling_us(const KernelWork& work) {
  const std::vector<kernels::SampleRow> rows(work.sampled());
  std::vector<int32_t> tokens(work.sampled());
  kernels::Sample args;
  args.logits = reinterpret_cast<const float*>(logits_.data());
  args.rows = work.sampled();
  args.shard_vocab = args.vocab = shapes_.shard.vocab.size();
  args.row = rows.data();
  args.token = tokens.data();
  args.workspace = sampling_.data();
  return timed([&] { kernels::sample(args, rig_.stream()); });
}

double CpuKernels::time_us(KernelOp op, const KernelWork& work) {
  const KernelRows rows(shapes_, work);
  const size_t hidden = shapes_.spec.hidden;
  kernels::Stream& stream = rig_.stream();
  switch (op) {
    case KernelOp::embedding: {
      const kernels::Embedding args{
          In(weights_.data(), dtype()),
          rows.ids.data(),
          elements(x_),
          work.rows(),
          hidden,
          0,
          std::min(shapes_.shard.vocab.size(), weights_.bytes() / hidden / dtype_bytes(dtype()))};
      return timed([&] { kernels::embedding(args, stream); });
    }
    case KernelOp::norm: {
      kernels::RmsNorm args;
      args.x = elements(x_);
      args.y = elements(gate_up_);
      args.weight = In(weights_.data(), dtype());
      args.tokens = work.rows();
      args.width = args.x_stride = args.y_stride = hidden;
      return timed([&] { kernels::rms_norm<>(args, stream); });
    }
    case KernelOp::rope:
      return rope_us(rows, work);
    case KernelOp::attention:
      return attention_us(rows);
    case KernelOp::swiglu:
      return timed([&] {
        kernels::swiglu<>({elements(gate_up_), elements(x_), work.rows(), shapes_.shard.ffn.size()},
                          stream);
      });
    case KernelOp::residual:
      return timed([&] {
        kernels::residual_add(
            {reinterpret_cast<const float*>(sums_.data()), {}, elements(x_), work.rows(), hidden},
            stream);
      });
    case KernelOp::sampling:
      return sampling_us(work);
    default:
      return product_us(op, work);
  }
}

}  // namespace

std::unique_ptr<KernelSet> make_cpu_kernels(const KernelShapes& shapes,
                                            const std::vector<KernelWork>& works, const Rig& rig) {
  return std::make_unique<CpuKernels>(shapes, works, rig);
}

}  // namespace weft::launch
