// Gumbel noise that every backend computes to the same bits: doubles, plain products and sums that
// are never fused (-ffp-contract=off; __dmul_rn, __dadd_rn and __ddiv_rn on a GPU), no library log.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/sampling.h"

namespace weft::kernels {

// ln x for normal x > 0, within 2 units in the last place. x = 2^e m with m in [√½, √2);
// ln m = 2 artanh s with s = (m − 1) / (m + 1), |s| < 0.172, by its series.
inline double plain_log(double x) {
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdull;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const int64_t e = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 21;
  series = series * z + 1.0 / 19;
  series = series * z + 1.0 / 17;
  series = series * z + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  const double log_m = 2.0 * s + 2.0 * s * z * series;
  // ln 2 in two parts; the first has 21 trailing zero bits, so that its product with e is exact.
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const auto exponent = static_cast<double>(e);
  return exponent * kLn2High + (exponent * kLn2Low + log_m);
}

// −ln(−ln u) with u = (the word's upper 24 bits + ½) / 2^24, so that u is never 0 or 1.
inline double gumbel(uint32_t word) {
  const double u = (static_cast<double>(word >> 8) + 0.5) * 0x1p-24;
  return -plain_log(-plain_log(u));
}

// No noise is larger: u = 1 − 2^-25 gives 25 ln 2 = 17.33.
inline constexpr double kMostGumbel = 17.4;

// Words of one Philox block serve four neighbouring ids.
inline double token_noise(uint64_t seed, uint32_t output_index, int32_t id) {
  const auto n = static_cast<uint32_t>(id);
  return gumbel(philox4x32(seed, n / 4, output_index).word[n % 4]);
}

}  // namespace weft::kernels
