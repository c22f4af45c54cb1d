// Continuous batching in closed form: by hand, at its limits, and monotone as the search needs it.
#include "planner/serving_model.h"

#include <cmath>
#include <random>

#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

EngineHabits plain_habits() {
  EngineHabits habits;
  habits.burst_share = habits.wait_steps = habits.first_token_steps = 0;
  return habits;
}

PipelineTimes one_stage(double prefill_ms, double decode_ms, size_t kv_blocks = 1 << 20) {
  return {prefill_ms, prefill_ms, decode_ms, decode_ms, 1, kv_blocks, false};
}

TEST(ServingModel, ByHand) {
  const ServedRequest request{1024, 100};
  const Served served =
      ContinuousBatching(request, plain_habits()).served(one_stage(20, 10), schedule(8), 8);
  EXPECT_DOUBLE_EQ(served.ttft_ms, 40);                  // two chunks of 512
  EXPECT_DOUBLE_EQ(served.tpot_ms, 10 + 40 * 7 / 99.0);  // seven others
  EXPECT_DOUBLE_EQ(served.tokens_per_s, 8 * 100 / (40 + 99 * 10 + 40.0 * 7) * 1000);
  EXPECT_FALSE(served.saturated);
}

TEST(ServingModel, BurstsWaitBeforeTheirFirstTokenInstead) {
  EngineHabits bursts = plain_habits();
  bursts.burst_share = 1;
  const ServedRequest request{512, 100};
  const Served served =
      ContinuousBatching(request, bursts).served(one_stage(20, 10), schedule(9), 9);
  EXPECT_DOUBLE_EQ(served.ttft_ms, 20 + 20 * 8 / 2.0);
  EXPECT_DOUBLE_EQ(served.tpot_ms, 10 + 20 * 8 * 0.5 / 99);
}

TEST(ServingModel, FollowersWaitForWhatIsUnderWay) {
  EngineHabits ahead = plain_habits();
  ahead.wait_steps = 2;
  const ServedRequest request{512, 100};
  const auto ttft = [&](size_t batch) {
    return ContinuousBatching(request, ahead)
        .served(one_stage(20, 10), schedule(batch), static_cast<double>(batch))
        .ttft_ms;
  };
  EXPECT_DOUBLE_EQ(ttft(1), 20);  // nobody else
  EXPECT_DOUBLE_EQ(ttft(8), 20 + 20 * 2 * (1 - 3.0 / 16));
}

TEST(ServingModel, WhoFindsNoKvQueues) {
  const ServedRequest request{640, 128};  // 704 tokens in the mean: 11 blocks
  EXPECT_EQ(mean_kv_blocks(request), 11u);
  const ContinuousBatching model(request, plain_habits());
  const Served enough = model.served(one_stage(20, 10, 88), schedule(8, 1, 640), 8);
  const Served scarce = model.served(one_stage(20, 10, 87), schedule(8, 1, 640), 8);
  EXPECT_FALSE(enough.saturated);
  EXPECT_TRUE(scarce.saturated);
  EXPECT_EQ(scarce.concurrency, 7);
  EXPECT_NEAR(scarce.ttft_ms, enough.ttft_ms + 1 / (scarce.tokens_per_s / 128) * 1000, 1e-9);
  EXPECT_LT(scarce.tokens_per_s, enough.tokens_per_s);
  const Served none = model.served(one_stage(20, 10, 10), schedule(8, 1, 640), 8);
  EXPECT_TRUE(std::isinf(none.ttft_ms));
  EXPECT_EQ(none.tokens_per_s, 0);
}

TEST(ServingModel, WhoFindsNoPlaceInTheBatchQueues) {
  const ServedRequest request{512, 64};
  EngineHabits few = plain_habits();
  few.batch_limit = 4;
  const Served served = ContinuousBatching(request, few).served(one_stage(20, 10), schedule(8), 8);
  EXPECT_EQ(served.concurrency, 4);
  EXPECT_TRUE(served.saturated);
}

TEST(ServingModel, GroupsOfTheirOwnHoldNobodyUp) {
  const ServedRequest request{512, 64};
  PipelineTimes times = one_stage(50, 10);
  times.separate_groups = true;
  const Served served = ContinuousBatching(request, plain_habits()).served(times, schedule(64), 64);
  EXPECT_DOUBLE_EQ(served.tpot_ms, 10);
  EXPECT_DOUBLE_EQ(served.tokens_per_s, 64 / 50.0 * 1000);  // the prefill group binds
}

// What the search relies on: 2,000 random points; each of the five is worsened in turn.
TEST(ServingModel, NothingGetsBetterWhenAStageGetsWorse) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < 2000; ++i) {
    EngineHabits habits = plain_habits();
    habits.burst_share = share(random);
    habits.wait_steps = 3 * share(random);
    habits.first_token_steps = 2 * share(random);
    const ServedRequest request{1 + random() % 5000, 1 + random() % 500};
    PipelineTimes times;
    times.n_stages = 1 + random() % 4;
    times.prefill_max_ms = 100 * share(random);
    times.prefill_sum_ms = times.prefill_max_ms * (1 + share(random));
    times.decode_max_ms = 20 * share(random);
    times.decode_sum_ms = times.decode_max_ms * (1 + share(random));
    times.kv_blocks = random() % 4000;
    times.separate_groups = random() % 4 == 0;
    const Schedule at = schedule(1 + random() % 256, 1 + random() % 4);
    const double concurrency = static_cast<double>(1 + random() % 300);
    const ContinuousBatching model(request, habits);
    const Served before = model.served(times, at, concurrency);
    for (int change = 0; change < 5; ++change) {
      PipelineTimes worse = times;
      if (change == 0) worse.prefill_sum_ms *= 1.1;
      if (change == 1) worse.prefill_max_ms *= 1.1;
      if (change == 2) worse.decode_sum_ms *= 1.1;
      if (change == 3) worse.decode_max_ms *= 1.1;
      if (change == 4) worse.kv_blocks = worse.kv_blocks * 9 / 10;
      const Served after = model.served(worse, at, concurrency);
      const double slack = 1 + 1e-12;
      ASSERT_GE(after.ttft_ms * slack, before.ttft_ms) << "draw " << i << " change " << change;
      ASSERT_GE(after.tpot_ms * slack, before.tpot_ms) << "draw " << i << " change " << change;
      ASSERT_LE(after.tokens_per_s, before.tokens_per_s * slack)
          << "draw " << i << " change " << change;
    }
  }
}

}  // namespace
}  // namespace weft::planner
