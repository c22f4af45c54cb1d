// Numbers whose sums are exact in their type, and the comparison that finds every wrong bit.
#include "kernels/link_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace weft::kernels {
namespace {

// By hand: 8 x 31 = 248 <= 2^8; 8 x 255 = 2040 <= 2^11; 8 x 65535 <= 2^24, where 16 bits end.
TEST(LinkPattern, MasksKeepSumsExact) {
  EXPECT_EQ(pattern_mask(DType::bf16, 8), 31u);
  EXPECT_EQ(pattern_mask(DType::f16, 8), 255u);
  EXPECT_EQ(pattern_mask(DType::f32, 8), 65535u);
  EXPECT_EQ(pattern_mask(DType::f32, 1000), 16383u);
  EXPECT_EQ(pattern_mask(DType::bf16, 256), 1u);
  EXPECT_EQ(pattern_mask(DType::bf16, 257), 0u);
}

TEST(LinkPattern, RanksDifferAndPartsContinue) {
  std::set<std::vector<uint32_t>> rows;
  for (int rank = 0; rank < 8; ++rank) {
    std::vector<uint32_t> row;
    for (size_t i = 0; i < 64; ++i) row.push_back(pattern_value(i, rank, 31));
    EXPECT_GT(*std::max_element(row.begin(), row.end()), 20u);
    rows.insert(row);
  }
  EXPECT_EQ(rows.size(), 8u);
  std::vector<float> whole(40), part(10);
  fill_pattern({whole.data(), whole.size(), 0, 3, 4, 31});
  fill_pattern({part.data(), part.size(), 30, 3, 4, 31});
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 30));
}

template <class T>
class LinkPatternOf : public testing::Test {};
using Types = testing::Types<float, f16, bf16>;
TYPED_TEST_SUITE(LinkPatternOf, Types);

// Added one rank after another, from either end, rounding at each step.
TYPED_TEST(LinkPatternOf, SumsOfRanksAreExactInAnyOrder) {
  constexpr int kRanks = 7;
  constexpr size_t kN = 1000;
  const uint32_t mask = pattern_mask(dtype_of<TypeParam>::value, kRanks);
  for (const bool backwards : {false, true}) {
    std::vector<TypeParam> sum(kN, from_float<TypeParam>(0)), one(kN);
    for (int r = 0; r < kRanks; ++r) {
      const int rank = backwards ? kRanks - 1 - r : r;
      fill_pattern({one.data(), kN, 0, rank, rank + 1, mask});
      for (size_t i = 0; i < kN; ++i)
        sum[i] = from_float<TypeParam>(to_float(sum[i]) + to_float(one[i]));
    }
    EXPECT_EQ(count_wrong({sum.data(), kN, 0, 0, kRanks, mask}), 0u);
  }
}

TYPED_TEST(LinkPatternOf, OneWrongBitIsFound) {
  std::vector<TypeParam> data(33);
  const LinkPattern args{data.data(), data.size(), 5, 1, 2, 31};
  fill_pattern(args);
  EXPECT_EQ(count_wrong(args), 0u);
  reinterpret_cast<unsigned char*>(&data[32])[0] ^= 1;
  EXPECT_EQ(count_wrong(args), 1u);
  LinkPattern other = args;
  other.first_rank = 2;
  other.end_rank = 3;
  EXPECT_GT(count_wrong(other), 16u);
}

}  // namespace
}  // namespace weft::kernels
