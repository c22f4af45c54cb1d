// Conversions of element types against a reference that only knows the formats' definition: an
// exponent range, a number of fraction bits, round to nearest even. In double, all of it is exact.
#include "runtime/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/error.h"

namespace weft {
namespace {

struct Format {
  int fraction_bits;
  int lowest_exponent;   // of a normal number
  int highest_exponent;  // of a finite number
};
constexpr Format kF16{10, -14, 15};
constexpr Format kBf16{7, -126, 127};

double value_of(uint16_t bits, const Format& format) {
  const int biased = (bits & 0x7fff) >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (biased == format.highest_exponent - format.lowest_exponent + 2)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  const int hidden = biased == 0 ? 0 : 1 << format.fraction_bits;
  const int exponent = (biased == 0 ? 1 : biased) - 1 + format.lowest_exponent;
  return sign * std::ldexp(hidden + fraction, exponent - format.fraction_bits);
}

double rounded_to(const Format& format, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), format.lowest_exponent);
  const double quantum = std::ldexp(1.0, exponent - format.fraction_bits);
  const double y = std::nearbyint(x / quantum) * quantum;
  const bool overflows = std::fabs(y) >= std::ldexp(1.0, format.highest_exponent + 1);
  return overflows ? std::copysign(INFINITY, x) : y;
}

template <class T>
constexpr Format kFormatOf = kF16;
template <>
constexpr Format kFormatOf<bf16> = kBf16;

// Equal as numbers and in the sign of zero; any NaN equals any NaN.
bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

template <class T>
::testing::AssertionResult rounds_right(float x) {
  const double wanted = rounded_to(kFormatOf<T>, x);
  const double got = value_of(from_float<T>(x).bits, kFormatOf<T>);
  if (same(got, wanted)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << std::hexfloat << x << " became " << got << ", not " << wanted;
}

template <class T>
class HalfTypes : public ::testing::Test {};
using Halves = ::testing::Types<f16, bf16>;
TYPED_TEST_SUITE(HalfTypes, Halves);

TYPED_TEST(HalfTypes, EveryValueBecomesItsFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const TypeParam x{static_cast<uint16_t>(bits)};
    ASSERT_TRUE(same(to_float(x), value_of(x.bits, kFormatOf<TypeParam>))) << "bits " << bits;
  }
}

TYPED_TEST(HalfTypes, EveryValueComesBackFromItsFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const TypeParam x{static_cast<uint16_t>(bits)};
    const TypeParam back = from_float<TypeParam>(to_float(x));
    if (std::isnan(to_float(x)))
      ASSERT_TRUE(std::isnan(to_float(back))) << "bits " << bits;
    else
      ASSERT_EQ(back.bits, x.bits);
  }
}

// Between each two neighbours: the tie, the float on either side of it, and the ends' own
// neighbours. Infinity's lower neighbour meets 2^(highest exponent + 1) in its place.
TYPED_TEST(HalfTypes, RoundsToNearestEvenBetweenAllNeighbours) {
  const Format format = kFormatOf<TypeParam>;
  for (uint32_t bits = 0; std::isfinite(value_of(static_cast<uint16_t>(bits), format)); ++bits) {
    const double low = value_of(static_cast<uint16_t>(bits), format);
    double high = value_of(static_cast<uint16_t>(bits + 1), format);
    if (std::isinf(high)) high = std::ldexp(1.0, format.highest_exponent + 1);
    const auto tie = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(tie), (low + high) / 2);
    for (const float x : {tie, std::nextafterf(tie, 0), std::nextafterf(tie, INFINITY),
                          std::nextafterf(static_cast<float>(low), INFINITY)}) {
      ASSERT_TRUE(rounds_right<TypeParam>(x));
      ASSERT_TRUE(rounds_right<TypeParam>(-x));
    }
  }
}

TYPED_TEST(HalfTypes, RoundsFloatsOfEveryMagnitude) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 9973)
    ASSERT_TRUE(rounds_right<TypeParam>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
}

TYPED_TEST(HalfTypes, OverflowGoesToInfinityAndNanStays) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_EQ(to_float(from_float<TypeParam>(kInf)), kInf);
  EXPECT_EQ(to_float(from_float<TypeParam>(-kInf)), -kInf);
  EXPECT_EQ(to_float(from_float<TypeParam>(kMost)), kInf);
  // A NaN whose payload is in the bits that are cut must not become infinity.
  for (const uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(to_float(from_float<TypeParam>(std::bit_cast<float>(nan))))) << nan;
}

TEST(F16, OverflowsFrom65520) {
  EXPECT_EQ(to_float(round_f16(65519.996f)), 65504.0f);
  EXPECT_EQ(to_float(round_f16(65520.0f)), INFINITY);
}

TEST(DType, NamesComeBackAndUnknownOnesAreNamed) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::f64})
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  try {
    dtype_from_name("fp8");
    FAIL() << "fp8 was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "unknown dtype \"fp8\": known are f32, f16, bf16");
    EXPECT_EQ(error.status(), 2);
  }
}

TEST(DType, SizesAreThoseOfTheStorageTypes) {
  EXPECT_EQ(dtype_bytes(DType::f32), sizeof(float));
  EXPECT_EQ(dtype_bytes(DType::f16), sizeof(f16));
  EXPECT_EQ(dtype_bytes(DType::bf16), sizeof(bf16));
  EXPECT_EQ(dtype_bytes(DType::i32), sizeof(int32_t));
  EXPECT_EQ(dtype_bytes(DType::f64), sizeof(double));
}

template <class From, class To>
void expect_converted(size_t n) {
  std::vector<From> in(n);
  for (size_t i = 0; i < n; ++i) in[i] = from_float<From>(0.37f * static_cast<float>(i) - 2.9f);
  std::vector<To> out(n + 1, from_float<To>(77));
  convert(in.data(), dtype_of<From>::value, out.data(), dtype_of<To>::value, n);
  for (size_t i = 0; i < n; ++i)
    EXPECT_EQ(to_float(out[i]), to_float(from_float<To>(to_float(in[i]))))
        << "of " << n << ": " << i;
  EXPECT_EQ(to_float(out[n]), 77) << "wrote beyond its " << n;
}

template <class From>
void expect_converted_to_all(size_t n) {
  expect_converted<From, float>(n);
  expect_converted<From, f16>(n);
  expect_converted<From, bf16>(n);
}

TEST(DType, ConvertsBetweenAllFloatTypes) {
  for (const size_t n : {0, 1, 31, 32, 33}) {
    expect_converted_to_all<float>(n);
    expect_converted_to_all<f16>(n);
    expect_converted_to_all<bf16>(n);
  }
}

}  // namespace
}  // namespace weft
