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

// The same work again and again, and the median of them: a slow phase of the machine, or a quick
// one, does not lie in one curve then.
constexpr size_t kPasses = 3;
// Of a layer's weights about a third are row-parallel: float32 sums of eight chunks.
constexpr size_t kProductsAtOnce = 3;
constexpr size_t kChunks = 8;
constexpr size_t kMostMatrixBytes = size_t{256} << 20;  // beyond caches
// What tells how much of a model stays in caches: a product of 128 KiB of weights.
constexpr size_t kProbe = 256;

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
      : arena_(arena), bytes_(bytes), n_(std::max<size_t>(arena_bytes / bytes, 1)) {}
  size_t size() const { return n_; }
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
    const size_t bytes = runtime::KvCache::bytes({}, n_sequences * blocks_, 1, heads.kv, heads.dim);
    fill(cache_.layer(0).base, bytes / sizeof(uint16_t));
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

// Weights of all shapes, and what a product needs beside them.
class ProductCase {
 public:
  explicit ProductCase(const ProductGrid& grid)
      : weights_(std::max(kMostMatrixBytes,
                          grid.outputs.back() * grid.inputs.back() * sizeof(uint16_t))),
        x_(grid.tokens.back() * grid.inputs.back()),
        y_(grid.tokens.back() * grid.outputs.back()),
        sums_(y_.size()),
        workspace_(kernels::gemm_workspace_floats(grid.tokens.back(), grid.outputs.back(),
                                                  grid.inputs.back())) {
    fill(weights_.data(), weights_.bytes() / 2);
    fill(x_.data(), x_.size());
  }

  Turn matrices(size_t arena_bytes, size_t outputs, size_t inputs) const {
    return {weights_.data(), std::min(arena_bytes, weights_.bytes()),
            outputs * inputs * sizeof(uint16_t)};
  }

  void run(const std::byte* matrix, size_t tokens, size_t outputs, size_t inputs, bool row_parallel,
           kernels::Stream& stream) const {
    kernels::Gemm args;
    args.x = In(x_.data(), DType::bf16);
    args.tokens = tokens;
    args.n = args.y_stride = outputs;
    args.k = args.x_stride = inputs;
    args.workspace = workspace_.data();
    args.w = In(matrix, DType::bf16);
    args.n_chunks = row_parallel ? kChunks : 1;
    args.y = row_parallel ? Out(sums_.data()) : Out(y_.data(), DType::bf16);
    kernels::gemm<>(args, stream);
  }

 private:
  Pages weights_;
  Arena<uint16_t> x_, y_;
  Arena<float> sums_, workspace_;
};

// A time of each product of the curve, 0 of matrices beyond the arena.
std::vector<double> pass_over(const Rig& rig, const ProductCase& made, size_t arena_bytes,
                              const planner::ProductCurve& curve) {
  std::vector<double> times;
  for (const size_t outputs : curve.outputs) {
    for (const size_t inputs : curve.inputs) {
      const bool beyond = outputs * inputs * sizeof(uint16_t) > arena_bytes;
      Turn matrices = made.matrices(arena_bytes, outputs, inputs);
      for (const size_t tokens : curve.tokens) {
        times.push_back(0);
        if (beyond) continue;
        const double us = rig.time_us(
            [&] {
              for (size_t i = 0; i < kProductsAtOnce; ++i)
                made.run(matrices.next(), tokens, outputs, inputs, i == 0, rig.stream());
            },
            kPasses);
        times.back() = us / kProductsAtOnce;
      }
    }
  }
  return times;
}

// Sets the curve's times to the medians of all passes; those beyond the arena stay.
void time_curve(const Rig& rig, const ProductCase& made, size_t arena_bytes,
                planner::ProductCurve& curve) {
  std::vector<std::vector<double>> passes;
  for (size_t pass = 0; pass < kPasses; ++pass)
    passes.push_back(pass_over(rig, made, arena_bytes, curve));
  curve.microseconds.resize(passes.front().size());
  for (size_t i = 0; i < curve.microseconds.size(); ++i) {
    std::vector<double> times;
    for (const std::vector<double>& pass : passes) times.push_back(pass[i]);
    if (const double us = median(times); us > 0) curve.microseconds[i] = us;
  }
}

// A round over each size: what of it stays in caches is read from there.
planner::CacheCurve time_cache(const Rig& rig, const ProductCase& made) {
  std::vector<planner::CacheTime> times;
  for (size_t mib = 1; mib <= kMostMatrixBytes >> 20; mib *= 2)
    for (const double part : {1.0, 1.5}) {
      const double size = part * static_cast<double>(mib);
      if (size * (1 << 20) <= kMostMatrixBytes) times.push_back({size, 0});
    }
  std::vector<std::vector<double>> passes(times.size());
  for (size_t pass = 0; pass < kPasses; ++pass)
    for (size_t t = 0; t < times.size(); ++t) {
      Turn matrices = made.matrices(static_cast<size_t>(times[t].mib * (1 << 20)), kProbe, kProbe);
      const double us = rig.time_us(
          [&] {
            for (size_t i = 0; i < matrices.size(); ++i)
              made.run(matrices.next(), 1, kProbe, kProbe, false, rig.stream());
          },
          kPasses);
      passes[t].push_back(us / static_cast<double>(matrices.size()));
    }
  for (size_t t = 0; t < times.size(); ++t) times[t].us = median(passes[t]);
  return planner::fit_cache(times);
}

}  // namespace

ProductTimes time_products(const Rig& rig) {
  const ProductGrid grid = product_grid(rig.quick());
  const ProductCase made(grid);
  ProductTimes times;
  times.cache = time_cache(rig, made);
  planner::ProductCurve& memory = times.from_memory;
  memory.tokens = grid.tokens;
  memory.outputs = grid.outputs;
  memory.inputs = grid.inputs;
  time_curve(rig, made, kMostMatrixBytes, memory);
  times.from_cache = memory;
  times.from_cache.cached = true;
  const auto half = static_cast<size_t>(cached_mib(times.cache) / 2 * (1 << 20));
  time_curve(rig, made, half, times.from_cache);
  return times;
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

double time_wait_share(const Rig& rig, double sum_us) {
  constexpr size_t kSide = 1024, kAtOnce = 3;
  const ProductCase made({{1}, {kSide}, {kSide}});
  Turn matrices = made.matrices(kMostMatrixBytes, kSide, kSide);
  float sum[64] = {};
  std::vector<double> works, waits;
  rig.time_each_us(rig.quick() ? 40 : 400, [&] {
    const RigClock::time_point start = RigClock::now();
    for (size_t i = 0; i < kAtOnce; ++i)
      made.run(matrices.next(), 1, kSide, kSide, i == 0, rig.stream());
    works.push_back(us_since(start));
    const RigClock::time_point ready = RigClock::now();
    rig.group().all_reduce(sum, std::size(sum), DType::f32, rig.stream());
    waits.push_back(us_since(ready));
    return waits.back();
  });
  return std::max(0.0, rig.mean(typical(waits)) - sum_us) / typical(works);
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
