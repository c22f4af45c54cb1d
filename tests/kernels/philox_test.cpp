// Philox4x32-10 against the known answers that its authors published, and the noise built on it.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gumbel.h"

namespace weft::kernels {
namespace {

void expect_words(uint64_t key, uint64_t low, uint64_t high, std::initializer_list<uint32_t> want) {
  const Philox got = philox4x32(key, low, high);
  size_t i = 0;
  for (uint32_t word : want) EXPECT_EQ(got.word[i++], word) << "word " << i - 1;
}

TEST(Philox, KnownAnswers) {
  expect_words(0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Digits of pi.
  expect_words(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e,
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Gumbel, LogarithmIsWithinTwoUnits) {
  for (double x = 1e-9; x < 30; x *= 1.0137) {
    const double want = std::log(x);
    EXPECT_NEAR(plain_log(x), want, 4e-16 * std::max(std::abs(want), 1e-3)) << x;
  }
  EXPECT_EQ(plain_log(1), 0);
  EXPECT_NEAR(plain_log(1 - 0x1p-25), std::log1p(-0x1p-25), 1e-23);
}

TEST(Gumbel, EndsAreFiniteAndBounded) {
  EXPECT_NEAR(gumbel(0), -std::log(25 * std::log(2.0)), 1e-12);
  EXPECT_NEAR(gumbel(~0u), 25 * std::log(2.0), 1e-6);
  EXPECT_LT(gumbel(~0u), kMostGumbel);
}

// Mean γ and variance π²/6 of the Gumbel distribution; each id, output and seed has its own noise.
TEST(Gumbel, MomentsOverIdsOutputsAndSeeds) {
  double sum = 0, squares = 0;
  const int n = 90000;
  for (int i = 0; i < n; ++i) {
    const double g =
        token_noise(static_cast<uint64_t>(i % 30), static_cast<uint32_t>(i / 30 % 30), i / 900);
    sum += g;
    squares += g * g;
  }
  const double mean = sum / n;
  EXPECT_NEAR(mean, 0.57722, 0.02);
  EXPECT_NEAR(squares / n - mean * mean, 1.64493, 0.05);
}

}  // namespace
}  // namespace weft::kernels
