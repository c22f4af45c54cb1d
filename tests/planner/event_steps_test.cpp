// The steps that a schedule's picture shows: no stage does two things at once, no batch is in two
// places, and they end when the simulation says.
#include <gtest/gtest.h>

#include <map>

#include "planner/event_simulation.h"

namespace weft::planner {
namespace {

SimulatedLoad three_stages(size_t in_flight) {
  SimulatedLoad load;
  for (const double ms : {1.0, 3.0, 2.0}) load.stages.push_back({{10 * ms, ms}, {0.5, 0.25}});
  load.batches_in_flight = in_flight;
  load.sequences = 2 * in_flight;
  load.prompt_chunks = 3;
  load.output_tokens = 40;
  return load;
}

TEST(SimulatedSteps, StagesAndBatchesDoOneThingAtATime) {
  for (const size_t in_flight : {1, 2, 3, 7}) {
    const std::vector<StageStep> steps = simulated_steps(three_stages(in_flight), 50);
    ASSERT_EQ(steps.size(), 150u);
    std::map<size_t, double> stage_free, batch_free;
    for (const StageStep& step : steps) {
      EXPECT_TRUE(step.decodes || step.prefills);
      EXPECT_GT(step.end_ms, step.begin_ms);
      EXPECT_GE(step.begin_ms, stage_free[step.stage]);
      EXPECT_GE(step.begin_ms, batch_free[step.batch]);
      stage_free[step.stage] = batch_free[step.batch] = step.end_ms;
      EXPECT_LT(step.batch, in_flight);
    }
  }
}

TEST(SimulatedSteps, TheFirstPromptTakesWhatAnIdlePipelineTakes) {
  SimulatedLoad load = three_stages(1);
  load.sequences = 1;
  load.prompt_chunks = 1;
  const std::vector<StageStep> steps = simulated_steps(load, 1);
  EXPECT_DOUBLE_EQ(steps.back().end_ms + load.stages.back().edge.prefill_ms,
                   simulated_prefill_ms(load.stages, 1));
  EXPECT_TRUE(steps.back().prefills);
  EXPECT_FALSE(steps.back().decodes);
}

}  // namespace
}  // namespace weft::planner
