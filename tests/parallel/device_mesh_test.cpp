// Ranks of stages, and slices that cover a buffer once whatever the widths.
#include "parallel/device_mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

planner::Plan plan_of(const std::vector<size_t>& widths) {
  planner::Plan plan;
  plan.replicas.emplace_back();
  for (const size_t tp : widths) {
    planner::Stage stage;
    stage.tp = tp;
    plan.replicas[0].stages.push_back(stage);
  }
  return plan;
}

TEST(DeviceMesh, CountsRanksThroughTheStages) {
  const DeviceMesh mesh = make_mesh(plan_of({2, 1, 4}));
  ASSERT_EQ(mesh.n_stages(), 3u);
  const std::vector<size_t> stages = {0, 0, 1, 2, 2, 2, 2};
  const std::vector<int> tp_ranks = {0, 1, 0, 0, 1, 2, 3};
  for (int rank = 0; rank < 7; ++rank) {
    EXPECT_EQ(mesh.stage_of(rank), stages[static_cast<size_t>(rank)]) << rank;
    EXPECT_EQ(mesh.tp_rank_of(rank), tp_ranks[static_cast<size_t>(rank)]) << rank;
  }
  EXPECT_EQ(mesh.ranks_of(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(mesh.ranks_of(1), (std::vector<int>{2}));
  EXPECT_EQ(mesh.ranks_of(2), (std::vector<int>{3, 4, 5, 6}));
}

TEST(DeviceMesh, RefusesWhatItCannotPlace) {
  EXPECT_THROW(make_mesh(planner::Plan{}), Error);
  EXPECT_THROW(make_mesh(plan_of({})), Error);
  EXPECT_THROW(make_mesh(plan_of({2, 0})), Error);
  EXPECT_THROW(make_mesh(plan_of({2, ~size_t{0}})), Error);
  planner::Plan with_dp = plan_of({2});
  with_dp.replicas[0].stages[0].dp = 2;
  EXPECT_THROW(make_mesh(with_dp), Error);
  const DeviceMesh mesh = make_mesh(plan_of({2, 2}));
  EXPECT_THROW(mesh.stage_of(4), Error);
  EXPECT_THROW(mesh.stage_of(-1), Error);
}

class EdgeSlices : public ::testing::TestWithParam<std::tuple<size_t, size_t, size_t>> {};

TEST_P(EdgeSlices, CoverTheBufferOnceWithEqualShares) {
  const auto [senders, receivers, n] = GetParam();
  // A stage in front, so that world ranks and tensor-parallel ranks differ.
  const DeviceMesh mesh = make_mesh(plan_of({3, senders, receivers}));
  const size_t length = (n + receivers - 1) / receivers;
  const int first_sender = 3;
  const int first_receiver = 3 + static_cast<int>(senders);
  std::map<int, size_t> sent;
  for (size_t s = 0; s < senders; ++s) sent[first_sender + static_cast<int>(s)] = 0;
  size_t at = 0;
  for (int i = 0; i < static_cast<int>(receivers); ++i) {
    const EdgeSlice slice = edge_slice(mesh, 1, 2, n, i);
    EXPECT_EQ(slice.begin, at);
    EXPECT_EQ(slice.end, std::min(n, at + length));
    EXPECT_EQ(slice.to, first_receiver + i);
    ASSERT_TRUE(sent.contains(slice.from)) << slice.from;
    ++sent[slice.from];
    at = slice.end;
  }
  EXPECT_EQ(at, n);
  const auto [least, most] = std::minmax_element(
      sent.begin(), sent.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_LE(most->second - least->second, 1u);
}

INSTANTIATE_TEST_SUITE_P(Widths, EdgeSlices,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2, 3, 8),
                                            ::testing::Values(0, 1, 2, 5, 31, 64, 7168, 100003)));

}  // namespace
}  // namespace weft::parallel
