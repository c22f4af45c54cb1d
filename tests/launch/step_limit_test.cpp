// A step's limit: never below ten seconds, never below what a slow machine needs, or as asked.
#include "launch/step_limit.h"

#include <gtest/gtest.h>

#include <string>

#include "planner/manual_plan.h"

namespace weft::launch {
namespace {

struct Case {
  planner::ModelSpec spec;
  planner::Plan plan;
};

Case make_case(const std::string& model, const std::string& layout) {
  Case made;
  made.spec = planner::read_model_yaml(std::string(WEFT_SOURCE_DIR) + "/configs/models/" + model);
  planner::ManualOptions options;
  options.rank_memory_bytes = size_t{80} << 30;
  options.context = 4096;
  options.max_sequences = 8;
  made.plan = planner::manual_plan(made.spec, planner::parse_layout(layout), options);
  return made;
}

TEST(StepLimit, CoversAPassThroughTheModel) {
  const Case made = make_case("deepseek-coder-33b.yaml", "31x1,31x1");
  const double limit = step_limit_s(made.spec, made.plan, 8, std::nullopt);
  const double flops =
      2 * 33.3e9 * static_cast<double>(made.plan.limits.max_batch_tokens);  // a batch's products
  EXPECT_GT(limit, flops / (8 * 2e9));
  EXPECT_GT(step_limit_s(made.spec, made.plan, 1, std::nullopt), limit);
}

TEST(StepLimit, HasAFloor) {
  Case made = make_case("deepseek-coder-1.3b.yaml", "24x1");
  made.spec.n_layers = 1;
  made.spec.ffn = 16;
  made.spec.vocab = 16;
  made.plan.limits.max_batch_tokens = 1;
  EXPECT_EQ(step_limit_s(made.spec, made.plan, 4, std::nullopt), kLeastStepLimitS);
}

// The plan's own prediction counts, for every batch in flight and a batch of several chunks.
TEST(StepLimit, FollowsThePrediction) {
  Case made = make_case("deepseek-coder-1.3b.yaml", "12x1,12x1");
  made.plan.limits.prefill_chunk = 128;
  made.plan.limits.max_batch_tokens = 512;
  made.plan.limits.batches_in_flight = 3;
  planner::Speed speed;
  speed.stages = {{1500, 100}, {2500, 200}};
  made.plan.predicted.speed = speed;
  EXPECT_NEAR(step_limit_s(made.spec, made.plan, 2, std::nullopt), 20 * 3 * (4 * 4.0 + 0.3), 1e-6);
  speed.stages = {{150, 10}, {250, 20}};
  made.plan.limits.max_batch_tokens = 128;
  made.plan.limits.batches_in_flight = 1;
  made.plan.predicted.speed = speed;
  EXPECT_EQ(step_limit_s(made.spec, made.plan, 64, std::nullopt), kLeastStepLimitS);
}

// Milliseconds that only GPUs reach are no limit for ranks on cores.
TEST(StepLimit, LeavesAPredictionForOtherMachinesAside) {
  Case made = make_case("deepseek-coder-33b.yaml", "31x1,31x1");
  const double slow = step_limit_s(made.spec, made.plan, 2, std::nullopt);
  planner::Speed speed;
  speed.stages = {{40, 9}, {40, 9}};
  made.plan.predicted.speed = speed;
  EXPECT_EQ(step_limit_s(made.spec, made.plan, 2, std::nullopt), slow);
}

TEST(StepLimit, IsWhatWasAsked) {
  const Case made = make_case("deepseek-coder-1.3b.yaml", "24x1");
  EXPECT_EQ(step_limit_s(made.spec, made.plan, 1, 3.5), 3.5);
  EXPECT_EQ(step_limit_s(made.spec, made.plan, 1, 0.0), 0.0);
}

}  // namespace
}  // namespace weft::launch
