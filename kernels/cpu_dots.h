// Dot products in 16 fixed lanes, for a vector type S: few tokens stream the weights straight from
// memory, many tokens reuse a panel of weights widened to float. Both add in the same order.
// Every function here has S among its template arguments: a shared one that the linker took from a
// file compiled for AVX-512 would end the program elsewhere.
#pragma once

#include "kernels/cpu_kernels.h"

namespace weft::kernels {

// A short group as a whole one, padded with zeros.
template <class S, class T>
struct PaddedGroup {
  T value[kLanes];
  PaddedGroup(const T* from, size_t n) {
    for (size_t i = 0; i < kLanes; ++i) value[i] = i < n ? from[i] : T{};
  }
};

template <class S, class T>
void widen(const void* from, float* to, size_t n, size_t n_padded) {
  const T* source = static_cast<const T*>(from);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (size_t part = 0; part < kLanes; part += S::kWidth)
      S::store(to + i + part, S::load(source + i + part));
  if (i < n) {
    const PaddedGroup<S, T> tail(source + i, n - i);
    for (size_t part = 0; part < kLanes; part += S::kWidth)
      S::store(to + i + part, S::load(tail.value + part));
    i += kLanes;
  }
  for (; i < n_padded; ++i) to[i] = 0;
}

// Lane sums of TT tokens and RR weight rows held in registers over the whole of k.
template <class S, class T, size_t TT, size_t RR>
struct DirectTile {
  static constexpr size_t kParts = kLanes / S::kWidth;
  typename S::Vec sum[RR][TT][kParts];

  [[gnu::always_inline]] inline void step(const float* x, size_t x_stride, const T* const (&w)[RR],
                                          size_t i) {
#pragma GCC unroll 8
    for (size_t p = 0; p < kParts; ++p) {
#pragma GCC unroll 8
      for (size_t r = 0; r < RR; ++r) {
        const typename S::Vec weight = S::load(w[r] + i + p * S::kWidth);
#pragma GCC unroll 8
        for (size_t t = 0; t < TT; ++t)
          sum[r][t][p] =
              S::fma(S::load(x + t * x_stride + i + p * S::kWidth), weight, sum[r][t][p]);
      }
    }
  }
};

template <class S, class T, size_t TT, size_t RR>
void direct_tile(const Dots& a, size_t row) {
  static_assert(TT * RR <= 8, "one reduction takes 8 outputs");
  const T* base = static_cast<const T*>(a.w) + row * a.w_stride;
  const T* w[RR];
  for (size_t r = 0; r < RR; ++r) w[r] = base + r * a.w_stride;
  DirectTile<S, T, TT, RR> tile;
  for (auto& by_token : tile.sum)
    for (auto& by_part : by_token)
      for (auto& part : by_part) part = S::zero();

  size_t i = 0;
  for (; i + kLanes <= a.k; i += kLanes) tile.step(a.x, a.x_stride, w, i);
  if (i < a.k) {
    for (size_t r = 0; r < RR; ++r) {
      const PaddedGroup<S, T> tail(w[r] + i, a.k - i);
      for (size_t p = 0; p < tile.kParts; ++p)
        for (size_t t = 0; t < TT; ++t)
          tile.sum[r][t][p] = S::fma(S::load(a.x + t * a.x_stride + i + p * S::kWidth),
                                     S::load(tail.value + p * S::kWidth), tile.sum[r][t][p]);
    }
  }

  alignas(64) float lanes[8 * kLanes] = {};
  float out[8];
  for (size_t r = 0; r < RR; ++r)
    for (size_t t = 0; t < TT; ++t)
      for (size_t p = 0; p < tile.kParts; ++p)
        S::store(lanes + (t * RR + r) * kLanes + p * S::kWidth, tile.sum[r][t][p]);
  S::reduce8(lanes, out);
  for (size_t t = 0; t < TT; ++t)
    for (size_t r = 0; r < RR; ++r) a.out[t * a.out_stride + row + r] = out[t * RR + r];
}

template <class S, class T, size_t TT>
void direct(const Dots& a) {
  constexpr size_t kRows = S::kDirectRows[TT - 1];
  size_t row = 0;
  for (; row + kRows <= a.rows; row += kRows) direct_tile<S, T, TT, kRows>(a, row);
  for (; row < a.rows; ++row) direct_tile<S, T, TT, 1>(a, row);
}

// A panel holds weight rows as float in the order that tiles read them: for each tile of kTileRows
// rows, for each part of the lanes, for each group of k, that part of each row.
template <class S>
struct PanelLayout {
  static constexpr size_t kParts = kLanes / S::kWidth;
  static constexpr size_t kStep = S::kTileRows * S::kWidth;  // floats of a group's part
  static constexpr size_t kPartFloats = kPanelK / kLanes * kStep;
  static constexpr size_t kTileFloats = kParts * kPartFloats;
};

// Row r of a panel from n weights; zeros up to k.
template <class S, class T>
void widen_into_panel(const T* w, size_t n, size_t k, size_t r, float* panel) {
  using Layout = PanelLayout<S>;
  float* to = panel + r / S::kTileRows * Layout::kTileFloats + r % S::kTileRows * S::kWidth;
  const auto put = [&](const T* from, size_t group) {
#pragma GCC unroll 2
    for (size_t p = 0; p < Layout::kParts; ++p)
      S::store(to + p * Layout::kPartFloats + group * Layout::kStep, S::load(from + p * S::kWidth));
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) put(w + i, i / kLanes);
  for (; i < k; i += kLanes) {
    const PaddedGroup<S, T> tail(w + i, i < n ? n - i : 0);
    put(tail.value, i / kLanes);
  }
}

// One block of k for TT tokens and one tile of a panel; lane sums rest in `lanes` between blocks.
// A register file of 16 holds the tile for one part of the lanes at a time.
template <class S, size_t TT>
void panel_tile(const float* x,     // [TT, k], rows x_stride elements apart
                size_t x_stride,    //
                const float* tile,  // PanelLayout
                size_t k,           // a multiple of kLanes
                bool first,         //
                float* lanes) {     // [TT, kPanelRows, kLanes]
  for (size_t part = 0; part < kLanes; part += S::kWidth) {
    typename S::Vec sum[TT][S::kTileRows];
#pragma GCC unroll 8
    for (size_t t = 0; t < TT; ++t)
#pragma GCC unroll 8
      for (size_t r = 0; r < S::kTileRows; ++r)
        sum[t][r] = first ? S::zero() : S::load(lanes + (t * kPanelRows + r) * kLanes + part);
    const float* w = tile + part / S::kWidth * PanelLayout<S>::kPartFloats;
    for (size_t i = part; i < k; i += kLanes, w += PanelLayout<S>::kStep) {
      typename S::Vec weight[S::kTileRows];
#pragma GCC unroll 8
      for (size_t r = 0; r < S::kTileRows; ++r) weight[r] = S::load(w + r * S::kWidth);
#pragma GCC unroll 8
      for (size_t t = 0; t < TT; ++t) {
        const typename S::Vec token = S::load(x + t * x_stride + i);
#pragma GCC unroll 8
        for (size_t r = 0; r < S::kTileRows; ++r) sum[t][r] = S::fma(token, weight[r], sum[t][r]);
      }
    }
#pragma GCC unroll 8
    for (size_t t = 0; t < TT; ++t)
#pragma GCC unroll 8
      for (size_t r = 0; r < S::kTileRows; ++r)
        S::store(lanes + (t * kPanelRows + r) * kLanes + part, sum[t][r]);
  }
}

template <class S, size_t TT>
void panel_tokens(const Dots& a, size_t token, size_t k_begin, size_t k, size_t rows,
                  const float* panel, float* lanes) {
  const float* x = a.x + token * a.x_stride + k_begin;
  for (size_t r = 0; r < rows; r += S::kTileRows)
    panel_tile<S, TT>(x, a.x_stride, panel + r / S::kTileRows * PanelLayout<S>::kTileFloats, k,
                      k_begin == 0, lanes + (token * kPanelRows + r) * kLanes);
}

// All tokens against `rows` <= kPanelRows weight rows from `row` on.
template <class S, class T>
void panel_rows(const Dots& a, size_t row, size_t rows) {
  float* panel = a.scratch;                     // kPanelRows · kPanelK floats
  float* lanes = panel + kPanelRows * kPanelK;  // [kDotsTokens, kPanelRows, kLanes]
  const T* w = static_cast<const T*>(a.w) + row * a.w_stride;
  for (size_t k_begin = 0; k_begin < a.k; k_begin += kPanelK) {
    const size_t n = a.k - k_begin < kPanelK ? a.k - k_begin : kPanelK;
    const size_t k = round_up(n, kLanes);
    for (size_t r = 0; r < round_up(rows, S::kTileRows); ++r)
      widen_into_panel<S, T>(w + r * a.w_stride + k_begin, r < rows ? n : 0, k, r, panel);
    size_t t = 0;
    for (; t + 4 <= a.tokens; t += 4) panel_tokens<S, 4>(a, t, k_begin, k, rows, panel, lanes);
    if (a.tokens - t == 3) panel_tokens<S, 3>(a, t, k_begin, k, rows, panel, lanes);
    if (a.tokens - t == 2) panel_tokens<S, 2>(a, t, k_begin, k, rows, panel, lanes);
    if (a.tokens - t == 1) panel_tokens<S, 1>(a, t, k_begin, k, rows, panel, lanes);
  }
  for (size_t t = 0; t < a.tokens; ++t) {
    float* out = a.out + t * a.out_stride + row;
    for (size_t r = 0; r < rows; r += 8) {
      float sum[8];
      S::reduce8(lanes + (t * kPanelRows + r) * kLanes, sum);
      for (size_t i = r; i < rows && i < r + 8; ++i) out[i] = sum[i - r];
    }
  }
}

template <class S, class T>
void dots(const Dots& a) {
  switch (a.tokens) {
    case 0:
      return;
    case 1:
      return direct<S, T, 1>(a);
    case 2:
      return direct<S, T, 2>(a);
    case 3:
      return direct<S, T, 3>(a);
    case 4:
      return direct<S, T, 4>(a);
  }
  for (size_t row = 0; row < a.rows; row += kPanelRows)
    panel_rows<S, T>(a, row, a.rows - row < kPanelRows ? a.rows - row : kPanelRows);
}

}  // namespace weft::kernels
