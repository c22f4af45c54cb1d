// Which sums go through peer memory, and how much of it they take.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/gpu_peer_reduce.h"
#include "parallel/peer_communicator.h"

namespace weft::parallel {
namespace {

TEST(PeerLimits, TakesWhatIsQuickestFromTheShortestOn) {
  const std::vector<PeerTiming> timings = {
      {4096, 3, 5, 12},  {8192, 4, 5, 12},     {16384, 6, 6, 12},    {32768, 9, 7, 13},
      {65536, 8, 9, 14}, {131072, 30, 11, 15}, {262144, 60, 21, 20}, {524288, 1, 1, 90}};
  EXPECT_EQ(choose_peer_limits(timings), (PeerLimits{16384, 131072}));
}

TEST(PeerLimits, MayBeNoneOrAll) {
  const std::vector<PeerTiming> slow = {{4096, 9, 9, 5}, {8192, 1, 1, 5}};
  EXPECT_EQ(choose_peer_limits(slow), (PeerLimits{0, 0}));
  const std::vector<PeerTiming> two_shot = {{4096, 4, 3, 5}, {8192, 3, 4, 5}};
  EXPECT_EQ(choose_peer_limits(two_shot), (PeerLimits{0, 8192}));
  const std::vector<PeerTiming> quick = {{4096, 1, 2, 5}, {8192, 1, 2, 5}};
  EXPECT_EQ(choose_peer_limits(quick), (PeerLimits{8192, 8192}));
  EXPECT_EQ(choose_peer_limits({}), (PeerLimits{0, 0}));
}

TEST(PeerWords, HoldEveryRanksShare) {
  EXPECT_EQ(kernels::peer_words(0), 0u);
  EXPECT_EQ(kernels::peer_words(1), 1u);
  EXPECT_EQ(kernels::peer_words(8), 1u);
  EXPECT_EQ(kernels::peer_words(9), 2u);
  EXPECT_EQ(kernels::one_shot_words(4, 33), 20u);
  EXPECT_EQ(kernels::two_shot_words(4, 33), 16u) << "parts of 2 words, of each rank and summed";
}

TEST(PeerWords, AreEnoughForTheLongestMessage) {
  for (int ranks = 2; ranks <= kernels::kMostPeers; ++ranks) {
    for (const size_t words : {size_t{128}, size_t{1000}, size_t{262'144}}) {
      const size_t one = kernels::one_shot_bytes(ranks, words);
      const size_t two = kernels::two_shot_bytes(ranks, words);
      EXPECT_LE(kernels::one_shot_words(ranks, one), words);
      EXPECT_GT(kernels::one_shot_words(ranks, one + 1), words);
      EXPECT_LE(kernels::two_shot_words(ranks, two), words);
      EXPECT_GT(kernels::two_shot_words(ranks, two + 1), words);
    }
    const PeerLimits limits = default_peer_limits();
    const size_t words = peer_half_words(ranks, limits);
    EXPECT_GE(kernels::one_shot_bytes(ranks, words), limits.one_shot_bytes);
    EXPECT_GE(kernels::two_shot_bytes(ranks, words), limits.two_shot_bytes);
  }
}

}  // namespace
}  // namespace weft::parallel
