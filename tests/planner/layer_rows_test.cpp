// The inner loops of the bounds against every split, on rows that are affine and rows that are not.
#include "planner/layer_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace weft::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Never falling, kNever before `first` and after `last`.
std::vector<double> rising(std::mt19937& random, size_t n, size_t first, size_t last, bool affine) {
  std::vector<double> row(n + 1, kNever);
  const double layer = static_cast<double>(random() % 50) / 7;
  double ms = 1 + static_cast<double>(random() % 100) / 3;
  for (size_t i = first; i <= last; ++i) {
    row[i] = ms;
    ms += affine ? layer : static_cast<double>(random() % 50) / 7;
  }
  return row;
}

TEST(LayerRow, KnowsRoomAndSlope) {
  const std::vector<double> affine = {kNever, 2, 2.5, 3, 3.5, kNever};
  EXPECT_EQ(layer_row(affine.data(), 5).most, 4u);
  EXPECT_NEAR(layer_row(affine.data(), 5).layer_ms, 0.5, 1e-12);
  const std::vector<double> bent = {kNever, 2, 2.5, 3.25, 3.5, 4};
  EXPECT_EQ(layer_row(bent.data(), 5).most, 5u);
  EXPECT_LT(layer_row(bent.data(), 5).layer_ms, 0);
  const std::vector<double> none(6, kNever);
  EXPECT_EQ(layer_row(none.data(), 5).most, 0u);
}

TEST(LayerRows, FindTheBestOfAllSplits) {
  std::mt19937 random(7);
  for (int draw = 0; draw < 400; ++draw) {
    const size_t n = 1 + random() % 40;
    const bool affine = draw % 2 == 0;
    const std::vector<double> stage = rising(random, n, 1, random() % (n + 1), affine);
    const size_t first = 1 + random() % n;
    const size_t last = std::min(n, first + random() % (n + 1));
    const std::vector<double> before = rising(random, n, first, last, draw % 3 == 0);
    std::vector<double> sum(n + 1, kNever), most(n + 1, kNever);
    std::vector<double> best_sum = sum, best_most = most;
    for (size_t l = 1; l <= n; ++l)
      for (size_t k = 1; k < l; ++k) {
        best_sum[l] = std::min(best_sum[l], stage[k] + before[l - k]);
        best_most[l] = std::min(best_most[l], std::max(stage[k], before[l - k]));
      }
    const LayerRow row = layer_row(stage.data(), n);
    add_to_sums(row, n, before.data(), sum.data());
    add_to_mosts(row, n, before.data(), most.data());
    for (size_t l = 1; l <= n; ++l) {
      ASSERT_EQ(most[l], best_most[l]) << "draw " << draw << ", " << l << " of " << n << " layers";
      if (best_sum[l] == kNever)
        ASSERT_EQ(sum[l], kNever) << "draw " << draw << ", " << l << " of " << n << " layers";
      else
        ASSERT_NEAR(sum[l], best_sum[l], 1e-9 * best_sum[l]) << "draw " << draw << ", layers " << l;
    }
  }
}

}  // namespace
}  // namespace weft::planner
