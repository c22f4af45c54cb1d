#include "runtime/gpu_graphs.h"

#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace weft::runtime {
namespace {

using test::small_limits;

TEST(GraphBuckets, DoubleUntilTheyHoldAllSequences) {
  planner::Limits limits = small_limits(5, 64, 40);
  limits.context = 512;
  const std::vector<GraphBucket> expected = {{1, 512}, {2, 512}, {4, 512}, {8, 512}};
  EXPECT_EQ(graph_buckets(limits), expected);
}

TEST(GraphBuckets, TakeSmallerStepsBeyond64) {
  planner::Limits limits = small_limits(130, 512, 40);
  limits.context = 1024;
  std::vector<size_t> rows;
  for (const GraphBucket& bucket : graph_buckets(limits)) rows.push_back(bucket.rows);
  EXPECT_EQ(rows, (std::vector<size_t>{1, 2, 4, 8, 16, 32, 64, 96, 128, 192}));
}

TEST(GraphBuckets, HaveContextsOfFourTimesEach) {
  planner::Limits limits = small_limits(1, 64, 40);
  limits.context = 16384;
  const std::vector<GraphBucket> expected = {{1, 1024}, {1, 4096}, {1, 16384}};
  EXPECT_EQ(graph_buckets(limits), expected);
}

TEST(GraphBuckets, FollowThePlan) {
  planner::Limits limits = small_limits(4, 64, 40);
  limits.context = 100;
  limits.graph_buckets = {4, 1, 1000};  // no batch has a thousand rows
  const std::vector<GraphBucket> expected = {{1, 100}, {4, 100}};
  EXPECT_EQ(graph_buckets(limits), expected);
}

}  // namespace
}  // namespace weft::runtime
