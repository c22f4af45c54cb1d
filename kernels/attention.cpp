// Attention on the CPU. A work item is one KV head and a block of token rows; rows of one sequence
// that follow each other are a tile that reads keys and values once. What a row computes does not
// depend on its tile: fixed lanes for scores and softmax sums (by absolute position), positions in
// order for values, spans merged in order.
#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/cpu_kernels.h"
#include "kernels/kv_address.h"

namespace weft::kernels {
namespace {

constexpr size_t kTileRows = 32;         // query rows (tokens × heads of a group) to aim at
constexpr size_t kWidenFromRows = 8;     // from here on a widened copy of the values pays
constexpr size_t kThreadWork = 100'000;  // multiply-adds worth waking threads for

struct Shape {
  size_t group;       // query heads a KV head
  size_t row_block;   // tokens in a work item
  size_t query_rows;  // row_block · group
  size_t width;       // head_dim in whole lanes

  Shape(size_t n_heads, size_t n_kv_heads, size_t head_dim)
      : group(n_heads / n_kv_heads),
        row_block(std::max<size_t>(1, kTileRows / group)),
        query_rows(row_block * group),
        width(round_up(head_dim, kLanes)) {}

  size_t floats() const {
    return query_rows * (3 * width + kSoftmaxSpan) + kKvBlockTokens * width +
           round_up(2 * query_rows, kLanes) + kDotsScratchFloats;
  }
};

// One thread's part of the workspace. A query row is token · group + head of the group.
struct Scratch {
  float* q;       // [query_rows, width]
  float* total;   // [query_rows, width] sum of values over the spans so far
  float* part;    // [query_rows, width] over this span
  float* score;   // [query_rows, kSoftmaxSpan]
  float* values;  // [kKvBlockTokens, width]
  float* max;     // [query_rows]
  float* sum;     // [query_rows]
  float* dots;    // kDotsScratchFloats

  Scratch(float* at, const Shape& s) {
    const auto take = [&](size_t n) { return std::exchange(at, at + n); };
    q = take(s.query_rows * s.width);
    total = take(s.query_rows * s.width);
    part = take(s.query_rows * s.width);
    score = take(s.query_rows * kSoftmaxSpan);
    values = take(kKvBlockTokens * s.width);
    dots = take(kDotsScratchFloats);
    max = take(s.query_rows);
    sum = take(s.query_rows);
  }
};

struct Range {
  size_t begin;
  size_t end;
  bool empty() const { return begin >= end; }
  Range within(Range other) const {
    return {std::max(begin, other.begin), std::min(end, other.end)};
  }
};

// Consecutive tokens of one sequence, against one KV head.
class Tile {
 public:
  Tile(const CpuKernels& cpu, const Attention& args, const Shape& shape, float* scratch,
       size_t token, size_t n_tokens, size_t kv_head)
      : cpu_(cpu),
        a_(args),
        s_(shape),
        at_(scratch, shape),
        token_(token),
        n_tokens_(n_tokens),
        kv_head_(kv_head),
        first_(static_cast<size_t>(args.rows.positions[token])) {}

  void run() {
    load_queries();
    std::fill_n(at_.total, query_rows() * s_.width, 0.0f);
    std::fill_n(at_.max, query_rows(), -INFINITY);
    std::fill_n(at_.sum, query_rows(), 0.0f);
    const Range all{visible(0).begin, visible(n_tokens_ - 1).end};
    for (size_t span = all.begin / kSoftmaxSpan * kSoftmaxSpan; span < all.end;
         span += kSoftmaxSpan)
      add_span(span, all.within({span, span + kSoftmaxSpan}));
    store();
  }

 private:
  size_t query_rows() const { return n_tokens_ * s_.group; }

  // Positions that the tile's token i sees.
  Range visible(size_t i) const {
    const size_t end = first_ + i + 1;
    return {a_.window > 0 && end > a_.window ? end - a_.window : 0, end};
  }

  void load_queries() {
    const auto widen = cpu_.widen[dtype_slot(a_.q.dtype)];
    const size_t bytes = dtype_bytes(a_.q.dtype);
    for (size_t i = 0; i < n_tokens_; ++i)
      for (size_t h = 0; h < s_.group; ++h)
        widen(a_.q.as<std::byte>() +
                  ((token_ + i) * a_.q_stride + (kv_head_ * s_.group + h) * a_.head_dim) * bytes,
              at_.q + (i * s_.group + h) * s_.width, a_.head_dim, s_.width);
  }

  // Calls f(positions, block) for the pieces of a range that lie in one cache block each.
  template <class F>
  void each_block(Range range, F&& f) {
    while (!range.empty()) {
      const size_t end = std::min(range.end, (range.begin / kKvBlockTokens + 1) * kKvBlockTokens);
      f(Range{range.begin, end}, block_of(a_.cache, a_.rows, token_, range.begin));
      range.begin = end;
    }
  }

  void add_span(size_t span, Range range) {
    each_block(range, [&](Range piece, std::byte* block) { score_block(span, piece, block); });
    for (size_t i = 0; i < n_tokens_; ++i) soften(span, i, visible(i).within(range));
    std::fill_n(at_.part, query_rows() * s_.width, 0.0f);
    each_block(range, [&](Range piece, std::byte* block) { value_block(span, piece, block); });
    for (size_t i = 0; i < n_tokens_; ++i)
      if (!visible(i).within(range).empty()) merge_token(i);
  }

  void score_block(size_t span, Range piece, std::byte* block) {
    Dots dots;
    dots.x = at_.q;
    dots.x_stride = s_.width;
    dots.tokens = query_rows();
    dots.w = key_at(a_.cache, block, kv_head_, piece.begin, a_.head_dim);
    dots.w_stride = a_.head_dim;
    dots.rows = piece.end - piece.begin;
    dots.k = a_.head_dim;
    dots.out = at_.score + (piece.begin - span);
    dots.out_stride = kSoftmaxSpan;
    dots.scratch = at_.dots;
    cpu_.dots[dtype_slot(a_.cache.key)](dots);
  }

  // The span's maximum and sum go beside the running ones once values have been added.
  void soften(size_t span, size_t token, Range range) {
    if (range.empty()) return;
    for (size_t row = token * s_.group; row < (token + 1) * s_.group; ++row)
      span_[row] = cpu_.softmax(at_.score + row * kSoftmaxSpan, range.begin - span,
                                range.end - span, a_.scale);
  }

  void value_block(size_t span, Range piece, std::byte* block) {
    const std::byte* v = value_at(a_.cache, block, kv_head_, piece.begin, a_.head_dim);
    const size_t bytes = dtype_bytes(a_.cache.value);
    WeightedSum sum;
    sum.width = a_.head_dim;
    DType dtype = a_.cache.value;
    sum.v = v;
    sum.v_stride = a_.head_dim;
    if (query_rows() >= kWidenFromRows) {
      for (size_t j = 0; j < piece.end - piece.begin; ++j)
        cpu_.widen[dtype_slot(dtype)](v + j * a_.head_dim * bytes, at_.values + j * s_.width,
                                      a_.head_dim, s_.width);
      sum.v = at_.values;
      sum.v_stride = s_.width;
      dtype = DType::f32;
    }
    // What every token sees in one go; before and after it, token by token.
    const Range common = piece.within({visible(n_tokens_ - 1).begin, visible(0).end});
    const size_t from = common.empty() ? piece.end : common.begin;
    for (size_t i = 0; i < n_tokens_; ++i)
      add_values(sum, dtype, span, piece, visible(i).within({piece.begin, from}), i, 1);
    if (common.empty()) return;
    add_values(sum, dtype, span, piece, common, 0, n_tokens_);
    for (size_t i = 0; i < n_tokens_; ++i)
      add_values(sum, dtype, span, piece, visible(i).within({common.end, piece.end}), i, 1);
  }

  // part += score · v over `range`, for n tokens from `token` on; sum.v is at piece.begin.
  void add_values(WeightedSum sum, DType dtype, size_t span, Range piece, Range range, size_t token,
                  size_t n) {
    if (range.empty()) return;
    const size_t row = token * s_.group;
    sum.rows = n * s_.group;
    sum.weight = at_.score + row * kSoftmaxSpan + (range.begin - span);
    sum.weight_stride = kSoftmaxSpan;
    sum.v = static_cast<const std::byte*>(sum.v) +
            (range.begin - piece.begin) * sum.v_stride * dtype_bytes(dtype);
    sum.n = range.end - range.begin;
    sum.out = at_.part + row * s_.width;
    sum.out_stride = s_.width;
    cpu_.weighted_sum[dtype_slot(dtype)](sum);
  }

  void merge_token(size_t token) {
    for (size_t row = token * s_.group; row < (token + 1) * s_.group; ++row) {
      const SpanSoftmax span = span_[row];
      const float max = std::max(at_.max[row], span.max);
      const float old_weight = cpu_.exp(at_.max[row] - max), weight = cpu_.exp(span.max - max);
      cpu_.merge(at_.total + row * s_.width, at_.part + row * s_.width, old_weight, weight,
                 s_.width);
      at_.sum[row] = std::fma(at_.sum[row], old_weight, span.sum * weight);
      at_.max[row] = max;
    }
  }

  void store() {
    with_float_type(a_.out.dtype, [&](auto type) {
      using T = decltype(type);
      for (size_t row = 0; row < query_rows(); ++row) {
        const size_t head = kv_head_ * s_.group + row % s_.group;
        const size_t token = token_ + row / s_.group;
        T* out = a_.out.as<T>() + (token * a_.n_heads + head) * a_.head_dim;
        const float* total = at_.total + row * s_.width;
        for (size_t i = 0; i < a_.head_dim; ++i) out[i] = from_float<T>(total[i] / at_.sum[row]);
      }
    });
  }

  static constexpr size_t kMaxQueryRows = kDotsTokens;

  const CpuKernels& cpu_;
  const Attention& a_;
  const Shape& s_;
  Scratch at_;
  size_t token_;
  size_t n_tokens_;
  size_t kv_head_;
  size_t first_;  // position of the first token
  SpanSoftmax span_[kMaxQueryRows];
};

// Tokens from `token` on, up to `end`, that continue its sequence.
size_t run_length(const PagedRows& rows, size_t token, size_t end) {
  size_t n = 1;
  while (token + n < end && rows.sequence[token + n] == rows.sequence[token] &&
         rows.positions[token + n] == rows.positions[token] + static_cast<int32_t>(n))
    ++n;
  return n;
}

size_t multiply_adds(const Attention& a) {
  size_t positions = 0;
  for (size_t t = 0; t < a.rows.tokens; ++t) {
    const size_t seen = static_cast<size_t>(a.rows.positions[t]) + 1;
    positions += a.window > 0 ? std::min(seen, a.window) : seen;
  }
  return 2 * positions * a.n_heads * a.head_dim;
}

void check(const Attention& a) {
  WEFT_EXPECT(a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0 && a.head_dim > 0);
  WEFT_EXPECT(a.n_heads / a.n_kv_heads <= kDotsTokens && a.q_stride >= a.n_heads * a.head_dim);
}

// Softmax over all positions at once, in double.
void oracle_row(const Attention& a, size_t token, size_t head) {
  const size_t g = head / (a.n_heads / a.n_kv_heads);
  const auto position = static_cast<size_t>(a.rows.positions[token]);
  const size_t begin = a.window > 0 && position + 1 > a.window ? position + 1 - a.window : 0;
  const auto value_of = [](const std::byte* at, DType dtype, size_t i) {
    return with_float_type(dtype, [&](auto type) {
      return double{to_float(reinterpret_cast<const decltype(type)*>(at)[i])};
    });
  };
  const std::byte* q =
      a.q.as<std::byte>() + (token * a.q_stride + head * a.head_dim) * dtype_bytes(a.q.dtype);
  std::vector<double> score, out(a.head_dim);
  double max = -INFINITY, sum = 0;
  for (size_t j = begin; j <= position; ++j) {
    const std::byte* key = key_at(a.cache, block_of(a.cache, a.rows, token, j), g, j, a.head_dim);
    double dot = 0;
    for (size_t i = 0; i < a.head_dim; ++i)
      dot += value_of(q, a.q.dtype, i) * value_of(key, a.cache.key, i);
    score.push_back(dot * double{a.scale});
    max = std::max(max, score.back());
  }
  for (size_t j = begin; j <= position; ++j) {
    const std::byte* value =
        value_at(a.cache, block_of(a.cache, a.rows, token, j), g, j, a.head_dim);
    const double e = std::exp(score[j - begin] - max);
    sum += e;
    for (size_t i = 0; i < a.head_dim; ++i) out[i] += e * value_of(value, a.cache.value, i);
  }
  with_float_type(a.out.dtype, [&](auto type) {
    using T = decltype(type);
    T* to = a.out.as<T>() + (token * a.n_heads + head) * a.head_dim;
    for (size_t i = 0; i < a.head_dim; ++i) to[i] = from_float<T>(static_cast<float>(out[i] / sum));
  });
}

}  // namespace

size_t attention_workspace_floats(size_t n_threads, size_t n_heads, size_t n_kv_heads,
                                  size_t head_dim) {
  return n_threads * Shape(n_heads, n_kv_heads, head_dim).floats();
}

void attention_with(const CpuKernels& cpu, const Attention& args, Stream& stream) {
  check(args);
  if (args.rows.tokens == 0) return;
  const Shape shape(args.n_heads, args.n_kv_heads, args.head_dim);
  const size_t blocks = (args.rows.tokens + shape.row_block - 1) / shape.row_block;
  const size_t n_items = blocks * args.n_kv_heads;
  std::atomic<size_t> next{0};
  // Later rows see more positions: the heavy items go first.
  const auto serve = [&](size_t slot) {
    for (size_t item = next++; item < n_items; item = next++) {
      const size_t block = blocks - 1 - item / args.n_kv_heads;
      const size_t end = std::min((block + 1) * shape.row_block, args.rows.tokens);
      for (size_t token = block * shape.row_block, n = 0; token < end; token += n) {
        n = run_length(args.rows, token, end);
        Tile(cpu, args, shape, args.workspace + slot * shape.floats(), token, n,
             item % args.n_kv_heads)
            .run();
      }
    }
  };
  const size_t threads = multiply_adds(args) < kThreadWork ? 1 : stream.pool().n_threads();
  stream.pool().split(std::min(threads, n_items), 1, [&](size_t begin, size_t end) {
    for (size_t slot = begin; slot < end; ++slot) serve(slot);
  });
}

template <class Acc>
void attention(const Attention& args, Stream& stream) {
  if constexpr (std::is_same_v<Acc, float>) return attention_with(best_cpu_kernels(), args, stream);
  check(args);
  for (size_t t = 0; t < args.rows.tokens; ++t)
    for (size_t h = 0; h < args.n_heads; ++h) oracle_row(args, t, h);
}

template void attention<float>(const Attention& args, Stream& stream);
template void attention<double>(const Attention& args, Stream& stream);

}  // namespace weft::kernels
