// Vectors of 16 floats for processors with AVX-512 F, BW, DQ and VL. Included by one file only,
// which is compiled for that set; everything is inlined so that no copy can leak into another.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "runtime/base/dtype.h"

#define WEFT_INLINE [[gnu::always_inline]] static inline

namespace weft::kernels {

struct Avx512 {
  using Vec = __m512;
  static constexpr size_t kWidth = 16;
  // Times 4 tokens: 24 accumulators of the 32 registers.
  static constexpr size_t kTileRows = 6;
  // Weight rows streamed side by side, for 1, 2, 3 and 4 tokens.
  static constexpr size_t kDirectRows[4] = {8, 4, 2, 2};

  WEFT_INLINE Vec zero() { return _mm512_setzero_ps(); }
  WEFT_INLINE Vec set(float x) { return _mm512_set1_ps(x); }
  WEFT_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
  WEFT_INLINE Vec load(const f16* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  WEFT_INLINE Vec load(const bf16* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  WEFT_INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
  WEFT_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  WEFT_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  WEFT_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  WEFT_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  WEFT_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  // The second operand where either is NaN.
  WEFT_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  WEFT_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }

  // x · 2^n, rounded once, where `magic` holds 1.5 · 2^23 + n and |n| < 250.
  WEFT_INLINE Vec scale_by_power(Vec x, Vec magic) {
    const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(magic), _mm512_set1_epi32(0x4b400000));
    const __m512i half = _mm512_srai_epi32(n, 1);
    return mul(mul(x, power(half)), power(_mm512_sub_epi32(n, half)));
  }
  WEFT_INLINE Vec power(__m512i n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
  }

  // The lane trees of 8 outputs at once: out[i] from lanes[16 i … 16 i + 15].
  WEFT_INLINE void reduce8(const float* lanes, float* out) {
    const auto fold = [&](size_t i) {
      return _mm256_add_ps(_mm256_loadu_ps(lanes + 16 * i), _mm256_loadu_ps(lanes + 16 * i + 8));
    };
    // The pairs' order makes the last shuffle put outputs in place.
    const __m256 a = by_four(by_two_halves(fold(0), fold(4)), by_two_halves(fold(1), fold(5)));
    const __m256 b = by_four(by_two_halves(fold(2), fold(6)), by_two_halves(fold(3), fold(7)));
    _mm256_storeu_ps(out,
                     _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)));
  }
  // (i, i + 4) of both.
  WEFT_INLINE __m256 by_two_halves(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  // (i, i + 2) of both.
  WEFT_INLINE __m256 by_four(__m256 a, __m256 b) {
    const __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
  }
};

}  // namespace weft::kernels

#undef WEFT_INLINE
