// The tree's order and its single rounding, against sums written out by hand.
#include "parallel/tree_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace weft::parallel {
namespace {

template <class T>
std::vector<std::vector<T>> random_parts(size_t ranks, size_t n) {
  std::mt19937 random(static_cast<unsigned>(ranks * 1000 + n));
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<std::vector<T>> parts(ranks, std::vector<T>(n));
  for (auto& part : parts) {
    for (T& x : part) x = from_float<T>(normal(random));
  }
  return parts;
}

template <class T>
std::vector<const void*> pointers(const std::vector<std::vector<T>>& parts) {
  std::vector<const void*> all;
  for (const auto& part : parts) all.push_back(part.data());
  return all;
}

TEST(TreeSum, AddsPairsOfPairs) {
  const size_t n = 1027;  // two whole blocks and a bit
  const auto p = random_parts<float>(8, n);
  std::vector<float> sum(n);
  tree_sum(pointers(p), sum.data(), n, DType::f32);
  bool order_matters = false;
  for (size_t i = 0; i < n; ++i) {
    const float left = (p[0][i] + p[1][i]) + (p[2][i] + p[3][i]);
    const float right = (p[4][i] + p[5][i]) + (p[6][i] + p[7][i]);
    EXPECT_EQ(sum[i], left + right) << i;
    float in_turn = 0;
    for (const auto& part : p) in_turn += part[i];
    order_matters |= in_turn != sum[i];
  }
  EXPECT_TRUE(order_matters) << "these inputs can't tell a tree from another order";
}

TEST(TreeSum, HangsOddRanksOnTheRight) {
  const size_t n = 33;
  const auto p = random_parts<float>(7, n);
  std::vector<float> sum(n);
  tree_sum(pointers(p), sum.data(), n, DType::f32);
  for (size_t i = 0; i < n; ++i) {
    const float left = (p[0][i] + p[1][i]) + (p[2][i] + p[3][i]);
    EXPECT_EQ(sum[i], left + ((p[4][i] + p[5][i]) + p[6][i])) << i;
  }
}

template <class T>
void expect_one_rounding() {
  const size_t n = 517;
  const auto p = random_parts<T>(3, n);
  std::vector<T> sum(n);
  tree_sum(pointers(p), sum.data(), n, dtype_of<T>::value);
  for (size_t i = 0; i < n; ++i) {
    const float exact = (to_float(p[0][i]) + to_float(p[1][i])) + to_float(p[2][i]);
    EXPECT_EQ(sum[i].bits, from_float<T>(exact).bits) << i;
  }
}

TEST(TreeSum, RoundsHalfTypesOnce) {
  expect_one_rounding<bf16>();
  expect_one_rounding<f16>();
}

TEST(TreeSum, MayOverwriteAPart) {
  const size_t n = 700;
  auto p = random_parts<float>(5, n);
  std::vector<float> apart(n);
  tree_sum(pointers(p), apart.data(), n, DType::f32);
  tree_sum(pointers(p), p[3].data(), n, DType::f32);
  EXPECT_EQ(std::memcmp(apart.data(), p[3].data(), n * sizeof(float)), 0);
}

TEST(TreeSum, OneRankAndNoElements) {
  const auto p = random_parts<bf16>(1, 31);
  std::vector<bf16> sum(31);
  tree_sum(pointers(p), sum.data(), 31, DType::bf16);
  EXPECT_EQ(std::memcmp(sum.data(), p[0].data(), 62), 0);
  tree_sum(pointers(p), nullptr, 0, DType::bf16);
}

}  // namespace
}  // namespace weft::parallel
