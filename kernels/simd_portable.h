// Vectors of 16 floats in plain C++: the meaning of the other sets, and what runs where there is
// none. Compilers for AArch64 turn the loops into NEON.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "runtime/base/dtype.h"

namespace weft::kernels {

struct Portable {
  struct Vec {
    float lane[16];
  };
  static constexpr size_t kWidth = 16;
  static constexpr size_t kTileRows = 2;
  // Weight rows streamed side by side, for 1, 2, 3 and 4 tokens.
  static constexpr size_t kDirectRows[4] = {4, 2, 2, 2};

  template <class F>
  static Vec each(F&& f) {
    Vec y;
    for (size_t i = 0; i < 16; ++i) y.lane[i] = f(i);
    return y;
  }

  static Vec zero() { return set(0); }
  static Vec set(float x) {
    return each([&](size_t) { return x; });
  }
  template <class T>
  static Vec load(const T* p) {
    return each([&](size_t i) { return to_float(p[i]); });
  }
  static void store(float* p, const Vec& x) {
    for (size_t i = 0; i < 16; ++i) p[i] = x.lane[i];
  }
  static Vec fma(const Vec& a, const Vec& b, const Vec& c) {
    return each([&](size_t i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static Vec add(const Vec& a, const Vec& b) {
    return each([&](size_t i) { return a.lane[i] + b.lane[i]; });
  }
  static Vec sub(const Vec& a, const Vec& b) {
    return each([&](size_t i) { return a.lane[i] - b.lane[i]; });
  }
  static Vec mul(const Vec& a, const Vec& b) {
    return each([&](size_t i) { return a.lane[i] * b.lane[i]; });
  }
  static Vec div(const Vec& a, const Vec& b) {
    return each([&](size_t i) { return a.lane[i] / b.lane[i]; });
  }
  // The second operand where either is NaN.
  static Vec min(const Vec& a, const Vec& b) {
    return each([&](size_t i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Vec max(const Vec& a, const Vec& b) {
    return each([&](size_t i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }

  // x · 2^n, rounded once, where `magic` holds 1.5 · 2^23 + n and |n| < 250.
  static Vec scale_by_power(const Vec& x, const Vec& magic) {
    return each([&](size_t i) {
      const int32_t n = std::bit_cast<int32_t>(magic.lane[i]) - 0x4b400000;
      return x.lane[i] * power(n >> 1) * power(n - (n >> 1));
    });
  }
  static float power(int32_t n) {
    return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
  }

  // The lane trees of 8 outputs: out[i] from lanes[16 i … 16 i + 15].
  static void reduce8(const float* lanes, float* out) {
    for (size_t i = 0; i < 8; ++i) {
      float sum[16];
      for (size_t j = 0; j < 16; ++j) sum[j] = lanes[16 * i + j];
      for (size_t step = 8; step > 0; step /= 2)
        for (size_t j = 0; j < step; ++j) sum[j] += sum[j + step];
      out[i] = sum[0];
    }
  }
};

}  // namespace weft::kernels
