// Closed forms of the pipeline against the event simulation, on random instances.
#include "planner/pipeline_model.h"

#include <cmath>
#include <random>

#include "planner/event_simulation.h"
#include "planner/serving_model.h"
#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

// 1 to 6 stages of `least` to 3 ms; edges of up to `edge_share` of a stage.
std::vector<StageAndEdge> random_stages(std::mt19937& random, double edge_share,
                                        double least = 0.5) {
  std::uniform_real_distribution<double> time(least, 3);
  std::vector<StageAndEdge> stages(1 + random() % 6);
  for (size_t i = 0; i < stages.size(); ++i) {
    stages[i].stage = {5 * time(random), time(random)};
    if (i + 1 == stages.size()) break;
    stages[i].edge = {edge_share * time(random), edge_share * time(random)};
  }
  return stages;
}

TEST(PipelineModel, SumsAndMaximaIncludeTheEdges) {
  const StageAndEdge stages[] = {{{10, 2}, {1, 0.5}}, {{12, 1}, {0, 0}}};
  const PipelineTimes times = pipeline_times(stages);
  EXPECT_EQ(times.n_stages, 2u);
  EXPECT_DOUBLE_EQ(times.prefill_sum_ms, 23);
  EXPECT_DOUBLE_EQ(times.prefill_max_ms, 12);
  EXPECT_DOUBLE_EQ(times.decode_sum_ms, 3.5);
  EXPECT_DOUBLE_EQ(times.decode_max_ms, 2.5);
  EXPECT_DOUBLE_EQ(prefill_latency_ms(times, 3), 23 + 2 * 12);
  EXPECT_DOUBLE_EQ(decode_period_ms(times, 1), 3.5);
  EXPECT_DOUBLE_EQ(decode_period_ms(times, 3), 7.5);
}

// Without edges the closed forms are exact.
TEST(PipelineModel, IsExactWithoutEdges) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const std::vector<StageAndEdge> stages = random_stages(random, 0);
    const PipelineTimes times = pipeline_times(stages);
    const size_t in_flight = 1 + random() % (2 * stages.size());
    const size_t chunks = 1 + random() % 9;
    const double period = decode_period_ms(times, in_flight);
    ASSERT_NEAR(simulated_decode_period_ms(stages, in_flight), period, 1e-6 * period) << seed;
    const double prefill = prefill_latency_ms(times, chunks);
    ASSERT_NEAR(simulated_prefill_ms(stages, chunks), prefill, 1e-9 * prefill) << seed;
  }
}

// An edge that is hidden behind the next step is counted all the same where the slowest stage
// binds: never too fast, and too slow by no more than the largest edge over the slowest stage.
TEST(PipelineModel, EdgesMakeItAnUpperBound) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const double share = 0.2;
    const std::vector<StageAndEdge> stages = random_stages(random, share);
    const PipelineTimes times = pipeline_times(stages);
    const size_t in_flight = 1 + random() % (2 * stages.size());
    double slowest = 0, edge = 0;
    for (const StageAndEdge& part : stages) {
      slowest = std::max(slowest, part.stage.decode_ms);
      edge = std::max(edge, part.edge.decode_ms);
    }
    const double simulated = simulated_decode_period_ms(stages, in_flight);
    const double closed = decode_period_ms(times, in_flight);
    ASSERT_GE(closed, simulated * (1 - 1e-9)) << seed;
    ASSERT_LE(closed, simulated * (1 + edge / slowest) * (1 + 1e-9)) << seed;
  }
}

// Keys and values of the stages before the last leave while the later ones compute: what is added
// is the last stage's alone.
TEST(PipelineModel, OnlyTheLastStagesHandOverIsWaitedFor) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> layer(0.5, 3), size(1, 4);
    std::vector<StageAndEdge> stages(1 + random() % 6);
    std::vector<double> handover;
    const double layer_ms = layer(random), handover_ms = layer_ms * layer(random) / 6;
    for (StageAndEdge& part : stages) {
      const double n_layers = std::round(size(random) * 4);
      part.stage.prefill_ms = n_layers * layer_ms;
      handover.push_back(n_layers * handover_ms);
    }
    const size_t chunks = 1 + random() % 9;
    const double simulated = simulated_handover_ms(stages, handover, chunks);
    stages.back().edge.prefill_ms = handover.back();
    const double closed = prefill_latency_ms(pipeline_times(stages), chunks);
    // Too high by what is hidden behind the next chunk, too low where an early stage of many layers
    // is followed by few.
    ASSERT_GE(closed, 0.9 * simulated) << seed;
    const double hidden = static_cast<double>(chunks - 1) * handover.back();
    ASSERT_LE(closed, (simulated + hidden) * (1 + 1e-9)) << seed;
  }
}

// A request waits for nobody's burst in the closed form, and the simulation counts none: a request
// joins the next step of any batch.
EngineHabits plain_habits() {
  EngineHabits habits;
  habits.burst_share = habits.wait_steps = 0;
  habits.first_token_steps = 1;
  habits.batch_limit = 100000;
  return habits;
}

struct Ratios {  // closed form over simulation
  double tpot = 0;
  double rate = 0;
};

// One batch in flight a stage; chunks of all requests fit into half of a request's steps, so that
// prefill leaves room for decoding.
Ratios compare_with_simulation(unsigned seed, size_t most_stages, double least_ms) {
  std::mt19937 random(seed);
  SimulatedLoad load;
  load.stages = random_stages(random, 0.05, least_ms);
  load.stages.resize(std::min(load.stages.size(), most_stages));
  load.stages.back().edge = {};
  load.batches_in_flight = load.stages.size();
  load.prompt_chunks = 1 + random() % 3;
  load.output_tokens = 100 + random() % 200;
  const size_t most = load.output_tokens / 2 / load.prompt_chunks;
  load.sequences = load.batches_in_flight * (1 + random() % (most / load.batches_in_flight));
  const SimulatedResult simulated = simulate(load);

  const ServedRequest request{512 * load.prompt_chunks, load.output_tokens};
  PipelineTimes times = pipeline_times(load.stages);
  times.kv_blocks = 1 << 30;
  const Served served = ContinuousBatching(request, plain_habits())
                            .served(times, schedule(load.sequences, load.batches_in_flight),
                                    static_cast<double>(load.sequences));
  return {served.tpot_ms / simulated.tpot_ms, served.tokens_per_s / simulated.tokens_per_s};
}

TEST(ServingModel, AgreesWithTheSimulationOfOneStage) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Ratios ratios = compare_with_simulation(seed, 1, 0.5);
    ASSERT_NEAR(ratios.tpot, 1, 0.02) << "seed " << seed;
    ASSERT_NEAR(ratios.rate, 1, 0.05) << "seed " << seed;
  }
}

// Plans balance their stages. A chunk delays its own batch by all stages and the others by the
// slowest at most, which the closed form takes for all: up to 15 % too slow.
TEST(ServingModel, AgreesWithTheSimulationOfBalancedPipelines) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Ratios ratios = compare_with_simulation(seed, 6, 2.2);
    ASSERT_GT(ratios.tpot, 0.97) << "seed " << seed;
    ASSERT_LT(ratios.tpot, 1.15) << "seed " << seed;
    ASSERT_GT(ratios.rate, 0.85) << "seed " << seed;
    ASSERT_LT(ratios.rate, 1.05) << "seed " << seed;
  }
}

// With slack in uneven stages the closed form errs further, but to the safe side only.
TEST(ServingModel, PromisesNoMoreThanTheSimulationOfUnevenPipelines) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Ratios ratios = compare_with_simulation(seed, 6, 0.5);
    ASSERT_GT(ratios.tpot, 0.97) << "seed " << seed;
    ASSERT_LT(ratios.tpot, 1.8) << "seed " << seed;
    ASSERT_LT(ratios.rate, 1.05) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weft::planner
