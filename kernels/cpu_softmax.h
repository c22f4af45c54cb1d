// Exponentials and what attention and SwiGLU build on them, for a vector type S.
#pragma once

#include "kernels/cpu_dots.h"

namespace weft::kernels {

// e^x within 1.5 units in the last place, subnormal results and infinity included; NaN stays NaN.
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r² q(r) with q fitted to a relative error of 1e-8.
template <class S>
[[gnu::always_inline]] inline typename S::Vec vector_exp(typename S::Vec x) {
  x = S::max(S::set(-110), S::min(S::set(89), x));
  const auto round_to_integer = S::set(0x1.8p23f);
  const auto magic = S::fma(x, S::set(0x1.715476p0f), round_to_integer);
  const auto n = S::sub(magic, round_to_integer);
  auto r = S::fma(n, S::set(-0x1.62e430p-1f), x);
  r = S::fma(n, S::set(0x1.05c610p-29f), r);
  auto q = S::fma(S::set(0x1.6d110ap-10f), r, S::set(0x1.120b6ep-7f));
  q = S::fma(q, r, S::set(0x1.55551ap-5f));
  q = S::fma(q, r, S::set(0x1.5554dcp-3f));
  q = S::fma(q, r, S::set(0.5f));
  const auto tail = S::fma(S::mul(r, r), q, r);
  return S::scale_by_power(S::add(S::set(1), tail), magic);
}

template <class S>
float scalar_exp(float x) {
  float lanes[kLanes];
  S::store(lanes, vector_exp<S>(S::set(x)));
  return lanes[0];
}

template <class S>
SpanSoftmax softmax(float* score, size_t begin, size_t end, float scale) {
  constexpr float kNone = -__builtin_inff();
  const size_t first = begin / kLanes * kLanes;
  const size_t last = round_up(end, kLanes);
  for (size_t j = first; j < begin; ++j) score[j] = kNone;
  for (size_t j = end; j < last; ++j) score[j] = kNone;

  auto most = S::set(kNone);
  for (size_t j = first; j < last; j += S::kWidth) {
    const auto scaled = S::mul(S::load(score + j), S::set(scale));
    S::store(score + j, scaled);
    most = S::max(most, scaled);
  }
  float lanes[8 * kLanes] = {};
  S::store(lanes, most);
  float max = lanes[0];
  for (size_t i = 1; i < S::kWidth; ++i) max = lanes[i] > max ? lanes[i] : max;

  typename S::Vec sum[kLanes / S::kWidth];
  for (auto& part : sum) part = S::zero();
  for (size_t j = first; j < last; j += kLanes) {
#pragma GCC unroll 2
    for (size_t p = 0; p < kLanes / S::kWidth; ++p) {
      float* at = score + j + p * S::kWidth;
      const auto e = vector_exp<S>(S::sub(S::load(at), S::set(max)));
      S::store(at, e);
      sum[p] = S::add(sum[p], e);
    }
  }
  for (size_t p = 0; p < kLanes / S::kWidth; ++p) S::store(lanes + p * S::kWidth, sum[p]);
  float total[8];
  S::reduce8(lanes, total);
  return {max, total[0]};
}

template <class S>
void merge(float* total, const float* part, float a, float b, size_t n) {
  for (size_t i = 0; i < n; i += S::kWidth)
    S::store(total + i,
             S::fma(S::load(total + i), S::set(a), S::mul(S::load(part + i), S::set(b))));
}

template <class S>
void silu_mul(float* gate, const float* up, size_t n) {
  for (size_t i = 0; i < n; i += S::kWidth) {
    const auto g = S::load(gate + i);
    const auto one_plus = S::add(S::set(1), vector_exp<S>(S::sub(S::zero(), g)));
    S::store(gate + i, S::mul(S::div(g, one_plus), S::load(up + i)));
  }
}

// RR rows of weights against NV vectors of v.
template <class S, class T, size_t RR, size_t NV>
void weighted_tile(const WeightedSum& a, size_t row, size_t column) {
  typename S::Vec sum[RR][NV];
  float* out = a.out + row * a.out_stride + column;
  const float* weight = a.weight + row * a.weight_stride;
  const T* v = static_cast<const T*>(a.v) + column;
#pragma GCC unroll 8
  for (size_t r = 0; r < RR; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < NV; ++c) sum[r][c] = S::load(out + r * a.out_stride + c * S::kWidth);
  for (size_t j = 0; j < a.n; ++j) {
    typename S::Vec value[NV];
#pragma GCC unroll 8
    for (size_t c = 0; c < NV; ++c) value[c] = S::load(v + j * a.v_stride + c * S::kWidth);
#pragma GCC unroll 8
    for (size_t r = 0; r < RR; ++r) {
      const auto e = S::set(weight[r * a.weight_stride + j]);
#pragma GCC unroll 8
      for (size_t c = 0; c < NV; ++c) sum[r][c] = S::fma(e, value[c], sum[r][c]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < RR; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < NV; ++c) S::store(out + r * a.out_stride + c * S::kWidth, sum[r][c]);
}

// The columns beyond the last whole vector, one at a time through a padded copy.
template <class S, class T>
void weighted_tail(const WeightedSum& a, size_t row, size_t column) {
  float* out = a.out + row * a.out_stride + column;
  auto sum = S::load(PaddedGroup<S, float>(out, a.width - column).value);
  for (size_t j = 0; j < a.n; ++j) {
    const PaddedGroup<S, T> v(static_cast<const T*>(a.v) + j * a.v_stride + column,
                              a.width - column);
    sum = S::fma(S::set(a.weight[row * a.weight_stride + j]), S::load(v.value), sum);
  }
  float lanes[kLanes];
  S::store(lanes, sum);
  for (size_t i = column; i < a.width; ++i) out[i - column] = lanes[i - column];
}

template <class S, class T, size_t RR>
void weighted_rows(const WeightedSum& a, size_t row) {
  constexpr size_t kVectors = RR == 1 ? 8 : RR == 2 ? 4 : 2;  // 8 sums hide the latency of fma
  size_t column = 0;
  for (; column + kVectors * S::kWidth <= a.width; column += kVectors * S::kWidth)
    weighted_tile<S, T, RR, kVectors>(a, row, column);
  for (; column + S::kWidth <= a.width; column += S::kWidth)
    weighted_tile<S, T, RR, 1>(a, row, column);
  if (column == a.width) return;
  for (size_t r = row; r < row + RR; ++r) weighted_tail<S, T>(a, r, column);
}

template <class S, class T>
void weighted_sum(const WeightedSum& a) {
  size_t row = 0;
  for (; row + 4 <= a.rows; row += 4) weighted_rows<S, T, 4>(a, row);
  for (; row + 2 <= a.rows; row += 2) weighted_rows<S, T, 2>(a, row);
  for (; row < a.rows; ++row) weighted_rows<S, T, 1>(a, row);
}

template <class S>
constexpr CpuKernels cpu_table(std::string_view name) {
  return {name,
          {dots<S, float>, dots<S, f16>, dots<S, bf16>},
          {weighted_sum<S, float>, weighted_sum<S, f16>, weighted_sum<S, bf16>},
          {widen<S, float>, widen<S, f16>, widen<S, bf16>},
          softmax<S>,
          merge<S>,
          scalar_exp<S>,
          silu_mul<S>};
}

}  // namespace weft::kernels
