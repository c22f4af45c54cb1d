// The law that sums up a sweep.
#include "planner/throughput_law.h"

#include <vector>

#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

TEST(ThroughputLaw, FindsTheNumbersItWasMadeFrom) {
  const ThroughputLaw made{5000, 0.7, 0, 0};
  std::vector<ThroughputPoint> points;
  for (const double length : {300.0, 1000.0, 3333.0, 20000.0})
    for (const double batch : {31.0, 256.0}) {
      ThroughputPoint point{length, batch, 200000, 0};
      point.tokens_per_s = made.tokens_per_s(point);
      points.push_back(point);
    }
  const ThroughputLaw law = fit_throughput_law(points);
  EXPECT_NEAR(law.alpha, 5000, 1e-6);
  EXPECT_NEAR(law.beta, 0.7, 1e-9);
  EXPECT_NEAR(law.worst_error, 0, 1e-9);
  // 20,000 tokens: 10 sequences fit, whatever the batch limit.
  EXPECT_EQ(made.tokens_per_s({20000, 31, 200000, 0}), made.tokens_per_s({20000, 256, 200000, 0}));
}

TEST(ThroughputLaw, SaysHowFarItIsOff) {
  const ThroughputPoint points[] = {{100, 1, 1e6, 10}, {100, 1, 1e6, 12}, {1000, 1, 1e6, 5}};
  const ThroughputLaw law = fit_throughput_law(points);
  EXPECT_GT(law.worst_error, 0.08);
  EXPECT_LT(law.worst_error, 0.2);
  EXPECT_LE(law.mean_error, law.worst_error);
}

TEST(ThroughputLaw, NeedsTwoLengthsAndPositiveNumbers) {
  const ThroughputPoint same[] = {{100, 1, 1e6, 10}, {100, 2, 1e6, 12}};
  EXPECT_SAYS(error_of([&] { fit_throughput_law(same); }), "2 points of one length");
  EXPECT_SAYS(error_of([&] { fit_throughput_law({}); }), "0 points");
  const ThroughputPoint zero[] = {{100, 1, 1e6, 0}, {200, 1, 1e6, 12}};
  EXPECT_SAYS(error_of([&] { fit_throughput_law(zero); }), "0 is not above 0");
}

}  // namespace
}  // namespace weft::planner
