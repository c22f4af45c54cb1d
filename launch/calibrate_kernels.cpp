#include "launch/calibrate_kernels.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/sampling.h"
#include "planner/plan.h"
#include "runtime/base/pages.h"
#include "runtime/kv_cache.h"
#include "runtime/synthetic.h"

namespace weft::launch {
namespace {

using kernels::In;
using kernels::Out;
using planner::HeadCounts;

// Of a small model all matrices fit a cache, of a large one not even a few do.
constexpr size_t kMatricesOfAShape = 12;
// Of a layer's weights about a third are row-parallel: float32 sums of eight chunks.
constexpr size_t kProductsAtOnce = 3;
constexpr size_t kChunks = 8;
constexpr size_t kMostMatrixBytes = size_t{256} << 20;

// Values of a model's scale: no NaN, nothing that would be slow for its size.
void fill(void* to, size_t n) {
  runtime::make_elements(runtime::synthetic_key(7, "calibration"), {0, 1.0f / (1 << 20)}, 0, n, to,
                         DType::bf16);
}

// Memory as the decoder's arenas have it: large pages where the kernel grants them.
template <class T>
class Arena {
 public:
  explicit Arena(size_t n) : pages_(std::max<size_t>(1, n) * sizeof(T)), n_(n) {}
  T* data() const { return reinterpret_cast<T*>(pages_.data()); }
  size_t size() const { return n_; }

 private:
  Pages pages_;
  size_t n_;
};

// One matrix after another of an arena, round and round.
class Turn {
 public:
  Turn(const std::byte* arena, size_t arena_bytes, size_t bytes)
      : arena_(arena),
        bytes_(bytes),
        n_(std::clamp<size_t>(arena_bytes / bytes, 1, kMatricesOfAShape)) {}
  const std::byte* next() {
    index_ = (index_ + 1) % n_;
    return arena_ + index_ * bytes_;
  }

 private:
  const std::byte* arena_;
  size_t bytes_, n_, index_ = 0;
};

struct ProductGrid {
  std::vector<size_t> tokens, outputs, inputs;
};

ProductGrid product_grid(bool quick) {
  if (quick) return {{1, 8, 64}, {64, 512, 2048}, {64, 512, 2048}};
  return {{1, 2, 4, 8, 16, 64, 512},
          {64, 128, 256, 512, 1024, 2048, 8192},
          {64, 128, 256, 512, 1024, 2048, 8192}};
}

// Attention over a cache of one layer, its blocks in order, with room for all sequences.
class AttentionCase {
 public:
  AttentionCase(const Rig& rig, const HeadCounts& heads, size_t n_sequences, size_t context)
      : rig_(rig),
        heads_(heads),
        blocks_((context + planner::kKvBlockTokens - 1) / planner::kKvBlockTokens),
        cache_({}, n_sequences * blocks_, 1, heads.kv, heads.dim),
        table_(n_sequences * blocks_),
        workspace_(kernels::attention_workspace_floats(rig.stream().pool().n_threads(), heads.query,
                                                       heads.kv, heads.dim)) {
    std::iota(table_.begin(), table_.end(), 0);
    fill(cache_.layer(0).base, cache_.bytes() / 2);
  }

  // Each sequence's rows from position `first` on.
  double time_us(size_t n_sequences, size_t first, size_t rows_each) {
    std::vector<int32_t> positions, sequence;
    for (size_t s = 0; s < n_sequences; ++s)
      for (size_t i = 0; i < rows_each; ++i) {
        positions.push_back(static_cast<int32_t>(first + i));
        sequence.push_back(static_cast<int32_t>(s));
      }
    const size_t width = heads_.query * heads_.dim;
    const Arena<uint16_t> q(positions.size() * width), out(q.size());
    fill(q.data(), q.size());
    kernels::Attention args;
    args.q = In(q.data(), DType::bf16);
    args.out = Out(out.data(), DType::bf16);
    args.cache = cache_.layer(0);
    args.rows = {positions.data(), sequence.data(), table_.data(), blocks_, positions.size()};
    args.n_heads = heads_.query;
    args.n_kv_heads = heads_.kv;
    args.head_dim = heads_.dim;
    args.q_stride = width;
    args.scale = 1 / std::sqrt(static_cast<float>(heads_.dim));
    args.workspace = workspace_.data();
    return rig_.time_us([&] { kernels::attention<>(args, rig_.stream()); });
  }

 private:
  const Rig& rig_;
  HeadCounts heads_;
  size_t blocks_;
  runtime::KvCache cache_;
  std::vector<int32_t> table_;
  Arena<float> workspace_;
};

}  // namespace

planner::ProductCurve time_products(const Rig& rig) {
  const ProductGrid grid = product_grid(rig.quick());
  planner::ProductCurve curve;
  curve.tokens = grid.tokens;
  curve.outputs = grid.outputs;
  curve.inputs = grid.inputs;
  const size_t most_tokens = grid.tokens.back(), widest = grid.outputs.back(),
               deepest = grid.inputs.back();
  const size_t largest = widest * deepest * sizeof(uint16_t);
  const Pages weights(std::max(kMostMatrixBytes, largest));
  fill(weights.data(), weights.bytes() / 2);
  const Arena<uint16_t> x(most_tokens * deepest), y(most_tokens * widest);
  fill(x.data(), x.size());
  const Arena<float> sums(most_tokens * widest);
  const Arena<float> workspace(kernels::gemm_workspace_floats(most_tokens, widest, deepest));
  for (const size_t outputs : grid.outputs) {
    for (const size_t inputs : grid.inputs) {
      Turn matrices(weights.data(), weights.bytes(), outputs * inputs * sizeof(uint16_t));
      for (const size_t tokens : grid.tokens) {
        kernels::Gemm args;
        args.x = In(x.data(), DType::bf16);
        args.tokens = tokens;
        args.n = args.y_stride = outputs;
        args.k = args.x_stride = inputs;
        args.workspace = workspace.data();
        const double us = rig.time_us([&] {
          for (size_t i = 0; i < kProductsAtOnce; ++i) {
            const bool row_parallel = i == 0;
            args.w = In(matrices.next(), DType::bf16);
            args.n_chunks = row_parallel ? kChunks : 1;
            args.y = row_parallel ? Out(sums.data()) : Out(y.data(), DType::bf16);
            kernels::gemm<>(args, rig.stream());
          }
        });
        curve.microseconds.push_back(us / kProductsAtOnce);
      }
    }
  }
  return curve;
}

planner::DecodeAttentionCurve time_decode_attention(const Rig& rig) {
  std::vector<planner::DecodeAttentionTime> times;
  for (const HeadCounts& heads :
       {HeadCounts{8, 8, 64}, HeadCounts{8, 8, 128}, HeadCounts{16, 4, 64}}) {
    const size_t longest = rig.quick() ? 512 : 4096;
    for (const size_t sequences : {1, 4}) {
      AttentionCase made(rig, heads, sequences, longest);
      for (size_t context = 64; context <= longest; context *= 2)
        times.push_back({sequences, static_cast<double>(context), heads,
                         made.time_us(sequences, context - 1, 1)});
    }
  }
  return planner::fit_decode_attention(times);
}

planner::PrefillAttentionCurve time_prefill_attention(const Rig& rig) {
  std::vector<planner::PrefillAttentionTime> times;
  for (const HeadCounts& heads : {HeadCounts{8, 8, 64}, HeadCounts{8, 8, 128}}) {
    const size_t longest = rig.quick() ? 256 : 2048;
    AttentionCase made(rig, heads, 1, longest);
    for (size_t context = 32; context <= longest; context *= 2) {
      const size_t tokens = std::min<size_t>(context, 512);
      times.push_back({static_cast<double>(tokens), static_cast<double>(context - tokens), heads,
                       made.time_us(1, context - tokens, tokens)});
    }
  }
  return planner::fit_prefill_attention(times);
}

void time_sampling(const Rig& rig, planner::OverheadCurve& curve) {
  std::vector<planner::SampleTime> times;
  for (const size_t vocab : {2048, 32768}) {
    std::vector<float> logits(vocab);
    for (size_t i = 0; i < vocab; ++i) logits[i] = static_cast<float>(i % 257) / 64;
    const size_t n_threads = rig.stream().pool().n_threads();
    const Pages workspace(kernels::sample_workspace_bytes(vocab, n_threads));
    const kernels::SampleRow row;
    int32_t token = 0;
    kernels::Sample args;
    args.logits = logits.data();
    args.rows = 1;
    args.shard_vocab = args.vocab = vocab;
    args.row = &row;
    args.token = &token;
    args.workspace = workspace.data();
    times.push_back(
        {static_cast<double>(vocab), rig.time_us([&] { kernels::sample(args, rig.stream()); })});
  }
  planner::fit_sampling(times, curve);
}

}  // namespace weft::launch
