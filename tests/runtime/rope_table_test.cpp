// Rotary angles against the definitions, evaluated in double.
#include "runtime/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace weft::runtime {
namespace {

using planner::RopeScaling;
using planner::RopeSpec;

constexpr size_t kHeadDim = 64;

double plain(size_t i, double theta) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / kHeadDim);
}

TEST(RopeTable, PlainAndLinear) {
  RopeSpec rope;
  rope.theta = 1e5;
  const auto frequencies = rope_frequencies(rope, kHeadDim);
  ASSERT_EQ(frequencies.size(), kHeadDim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i)
    EXPECT_NEAR(frequencies[i] / plain(i, 1e5), 1.0, 1e-6) << i;
  rope.scaling = RopeScaling::linear;
  rope.factor = 4;
  const auto stretched = rope_frequencies(rope, kHeadDim);
  for (size_t i = 0; i < frequencies.size(); ++i)
    EXPECT_FLOAT_EQ(stretched[i], frequencies[i] / 4) << i;
}

TEST(RopeTable, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeSpec rope;
  rope.theta = 5e5;
  rope.scaling = RopeScaling::llama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_context = 8192;
  const auto f = rope_frequencies(rope, kHeadDim);
  size_t n_kept = 0, n_stretched = 0, n_blended = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    const double wave = 2 * std::numbers::pi / plain(i, 5e5);
    const double ratio = f[i] / plain(i, 5e5);
    if (wave < 8192 / 4.0) {
      EXPECT_NEAR(ratio, 1, 1e-6) << i;
      ++n_kept;
    } else if (wave > 8192) {
      EXPECT_NEAR(ratio, 1 / 8.0, 1e-6) << i;
      ++n_stretched;
    } else {
      const double blend = (8192 / wave - 1) / 3;
      EXPECT_NEAR(ratio, (1 - blend) / 8 + blend, 1e-5) << i;
      ++n_blended;
    }
  }
  EXPECT_GT(n_kept, 0u);
  EXPECT_GT(n_stretched, 0u);
  EXPECT_GT(n_blended, 0u);
}

TEST(RopeTable, YarnBlendsAndScalesCosAndSin) {
  RopeSpec rope;
  rope.theta = 1e4;
  rope.scaling = RopeScaling::yarn;
  rope.factor = 4;
  rope.original_context = 2048;
  const auto f = rope_frequencies(rope, kHeadDim);
  EXPECT_NEAR(f.front() / plain(0, 1e4), 1, 1e-6);
  EXPECT_NEAR(f.back() / plain(kHeadDim / 2 - 1, 1e4), 1 / 4.0, 1e-6);
  for (size_t i = 1; i < f.size(); ++i)
    EXPECT_LE(f[i] / plain(i, 1e4), f[i - 1] / plain(i - 1, 1e4) + 1e-6);
  EXPECT_NEAR(rope_attention_factor(rope), 0.1 * std::log(4.0) + 1, 1e-6);
  const auto table = rope_table(rope, kHeadDim, 3);
  EXPECT_NEAR(table[0], 0.1 * std::log(4.0) + 1, 1e-6);  // cos 0, scaled
  EXPECT_EQ(table[1], 0.0f);
}

TEST(RopeTable, HoldsCosAndSinOfEveryPosition) {
  RopeSpec rope;
  rope.theta = 1e5;
  const size_t context = 33;
  const auto table = rope_table(rope, kHeadDim, context);
  ASSERT_EQ(table.size(), context * kHeadDim);
  for (size_t p : {size_t{0}, size_t{1}, size_t{31}, size_t{32}})
    for (size_t i : {size_t{0}, size_t{1}, kHeadDim / 2 - 1}) {
      const double angle = static_cast<double>(p) * plain(i, 1e5);
      EXPECT_NEAR(table[(p * kHeadDim / 2 + i) * 2], std::cos(angle), 1e-5) << p << " " << i;
      EXPECT_NEAR(table[(p * kHeadDim / 2 + i) * 2 + 1], std::sin(angle), 1e-5) << p << " " << i;
    }
}

}  // namespace
}  // namespace weft::runtime
