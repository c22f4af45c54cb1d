// What of a cluster's GPUs equal replicas can have, against every way to cut the nodes.
#include "planner/node_room.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace weft::planner {
namespace {

Space space_of(const std::vector<std::pair<size_t, size_t>>& nodes) {
  Space space;
  for (const auto& [count, gpus] : nodes) {
    NodeClass& node = space.nodes.emplace_back();
    node.count = count;
    node.gpus = gpus;
  }
  return space;
}

// The most GPUs of parts that together take so many nodes, one by one.
size_t by_hand(const Space& space, size_t node_class, size_t n_replicas, size_t nodes) {
  size_t most = 0;
  for (size_t u = 1; u <= space.nodes[node_class].gpus; ++u) {
    const size_t cost = space.nodes_taken(node_class, u, n_replicas);
    if (cost <= nodes)
      most = std::max(most, u + by_hand(space, node_class, n_replicas, nodes - cost));
  }
  return most;
}

TEST(NodeRoom, CountsWhatCopiesLeaveIdle) {
  const Space space = space_of({{4, 8}});
  EXPECT_EQ(NodeRoom(space, 1).gpus(), 32u);
  EXPECT_EQ(NodeRoom(space, 4).gpus(), 8u);
  EXPECT_EQ(NodeRoom(space, 5).gpus(), 5u);  // four in three nodes and one in the fourth
  EXPECT_EQ(NodeRoom(space, 32).gpus(), 1u);
  EXPECT_EQ(NodeRoom(space, 33).gpus(), 0u);
}

TEST(NodeRoom, IsTheBestCutOfTheNodes) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto from = [&](size_t least, size_t most) {
      return least + random() % (most - least + 1);
    };
    const Space space = space_of({{from(1, 6), from(1, 9)}, {from(1, 6), from(1, 9)}});
    const size_t n_replicas = from(1, 12);
    size_t sum = 0;
    for (size_t c = 0; c < 2; ++c) sum += by_hand(space, c, n_replicas, space.nodes[c].count);
    ASSERT_EQ(NodeRoom(space, n_replicas).gpus(), sum) << seed;
  }
}

TEST(NodeRoom, APartMayGrowInItsNode) {
  const Space space = space_of({{3, 8}, {1, 4}});
  const NodeRoom room(space, 2);
  EXPECT_EQ(room.gpus({0, 0}, 0, 0), 0u);
  EXPECT_EQ(room.gpus({0, 0}, 0, 3), 1u);  // two copies of four still lie in one node
  EXPECT_EQ(room.gpus({1, 0}, 0, 3), 5u);  // each in a node of its own, or four beside
  EXPECT_EQ(room.gpus({2, 1}, 0, 3), 11u);
}

TEST(NodeRoom, ManyNodesAreCountedRoundly) {
  const Space space = space_of({{1000, 8}});
  EXPECT_EQ(NodeRoom(space, 7).gpus(), 8000u / 7);
}

}  // namespace
}  // namespace weft::planner
