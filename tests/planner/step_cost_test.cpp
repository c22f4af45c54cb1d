// A step by parts.
#include "planner/step_cost.h"

#include <algorithm>

#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

struct Setting {
  ModelSpec spec;
  MachineProfile gpu = machine("h100-sxm");
  EngineProfile engine_profile = engine("weft");
  StepSetting step;

  explicit Setting(const std::string& name) : spec(model(name)) {
    step.model = &spec;
    step.machine = &gpu;
    step.engine = &engine_profile;
  }
};

TEST(StepCost, ExpertsTouchedAreCountedByChance) {
  const ModelSpec mixtral = model("mixtral-8x7b");  // 2 of 8
  EXPECT_DOUBLE_EQ(experts_touched(mixtral, 1), 2);
  EXPECT_DOUBLE_EQ(experts_touched(mixtral, 2), 3.5);  // 8 (1 - (3/4)^2)
  EXPECT_NEAR(experts_touched(mixtral, 1000), 8, 1e-9);
  EXPECT_EQ(experts_touched(model("llama-3.1-8b"), 33), 0);
}

TEST(StepCost, ActiveWeightsOfALayer) {
  // Llama 8B: (32 + 8 + 8 + 32) heads of 128 and 3 FFN matrices against 4,096.
  EXPECT_EQ(layer_active_weights(model("llama-3.1-8b")), 4096.0 * (80 * 128 + 3 * 14336));
  EXPECT_EQ(layer_active_weights(model("mixtral-8x7b")), 4096.0 * (80 * 128 + 2 * 3 * 14336));
}

TEST(StepCost, OneSequenceIsBoundByReadingTheWeights) {
  Setting s("llama-3.1-8b");
  const StepParts parts = decode_step(s.step, whole_model(s.spec, 1), 1, 100);
  const double least_ms = 32 * layer_active_weights(s.spec) * 2 / 3350e9 * 1e3;
  EXPECT_GT(parts.products_ms, least_ms);
  EXPECT_LT(parts.products_ms, 1.5 * least_ms);
  EXPECT_EQ(parts.collectives_ms, 0);
  EXPECT_EQ(parts.experts_ms, 0);
}

// A stage whose weights stay in a cache does its products faster than one of more layers.
TEST(StepCost, LayersBeyondTheCacheCostMoreEach) {
  Setting s("deepseek-coder-1.3b");
  s.gpu = machine("cpu");
  std::erase_if(s.gpu.products, [](const ProductCurve& curve) { return curve.cached; });
  ProductCurve cached = s.gpu.products.front();
  cached.cached = true;
  for (double& us : cached.microseconds) us /= 3;
  s.gpu.products.push_back(cached);
  const double layer_mib = layer_active_weights(s.spec) * 2 / (1 << 20);
  s.gpu.caches = {{1, "a test", {2.5 * layer_mib, 4 * layer_mib}, {0, 1}}};
  const auto products_ms = [&](size_t n_layers) {
    StageShape shape;
    shape.n_layers = n_layers;
    return decode_step(s.step, shape, 1, 1).products_ms;
  };
  EXPECT_NEAR(products_ms(2), 2 * products_ms(1), 1e-6);
  EXPECT_NEAR(products_ms(8), 3 * products_ms(2) * 4, 0.01 * products_ms(8));
  CostSetting setting = cost_setting("deepseek-coder-1.3b", "cpu");
  setting.nodes[0].machine = s.gpu;
  EXPECT_FALSE(CostModel(setting).affine_in_layers());
  setting.nodes[0].machine.caches.clear();
  EXPECT_TRUE(CostModel(setting).affine_in_layers());
}

// Stages of one host that compute at the same time share its cores and its memory.
TEST(StepCost, RanksAtOnceTakeTheCurveOfSoMany) {
  CostSetting setting = cost_setting("deepseek-coder-1.3b", "cpu");
  MachineProfile& host = setting.nodes[0].machine;
  const auto alone = [](const auto& curve) { return curve.ranks == 1; };
  for (ProductCurve& curve : host.products)
    if (!alone(curve))
      for (double& us : curve.microseconds) us *= 10;
  ASSERT_FALSE(std::all_of(host.products.begin(), host.products.end(), alone));
  const CostModel costs(setting);
  EXPECT_TRUE(costs.shares_hosts());
  EXPECT_FALSE(CostModel(cost_setting("deepseek-coder-1.3b", "h100-sxm")).shares_hosts());
  StageShape shape;
  shape.n_layers = 12;
  const double one = costs.decode_ms(shape, schedule(2, 2));
  shape.at_once = 2;
  EXPECT_GT(costs.decode_ms(shape, schedule(2, 2)), 5 * one);
}

TEST(StepCost, TensorParallelismDividesLessThanByItsSize) {
  Setting s("qwen3-32b");
  double before = decode_step(s.step, whole_model(s.spec, 1), 31, 2000).total_ms();
  for (const size_t tp : {2, 4, 8}) {
    const StepParts parts = decode_step(s.step, whole_model(s.spec, tp), 31, 2000);
    EXPECT_LT(parts.total_ms(), before) << tp;
    EXPECT_GT(parts.total_ms(), before / 2) << tp;
    EXPECT_GT(parts.collectives_ms, 0) << tp;
    before = parts.total_ms();
  }
}

TEST(StepCost, AnExpertRankReadsItsShare) {
  Setting s("qwen3-235b-a22b");
  StageShape shape = whole_model(s.spec, 8);
  const double sliced = decode_step(s.step, shape, 64, 1000).experts_ms;  // 1/8 of each expert
  shape.ep = 8;                                                           // 16 whole experts
  EXPECT_NEAR(decode_step(s.step, shape, 64, 1000).experts_ms, sliced, 1e-9 * sliced);
  const double few = decode_step(s.step, shape, 1, 1000).experts_ms;
  EXPECT_LT(few, 0.2 * sliced);
}

TEST(StepCost, EnginesThatReadIdleExpertsPayForAll) {
  Setting s("qwen3-30b-a3b");
  const double touched = decode_step(s.step, whole_model(s.spec, 1), 1, 100).experts_ms;
  s.engine_profile.constants.experts_idle = 1;
  const double all = decode_step(s.step, whole_model(s.spec, 1), 1, 100).experts_ms;
  EXPECT_NEAR(all / touched, 128.0 / 8, 0.5);
}

TEST(StepCost, AShortPromptWaitsForTheHost) {
  Setting s("llama-3.1-8b");
  s.engine_profile.constants.prefill_layer_us = 1000;
  s.engine_profile.constants.step_us = 0;
  const StageShape shape = whole_model(s.spec, 1);
  const StepParts one = prefill_step(s.step, shape, 1, 0);
  EXPECT_NEAR(one.total_ms() - one.head_ms, 32, 1e-6);
  EXPECT_EQ(prefill_step(s.step, shape, 8192, 0).host_ms, 0);
}

TEST(StepCost, EveryLayerCosts) {
  for (const std::string name : {"deepseek-coder-33b", "mixtral-8x7b", "qwen3-30b-a3b"}) {
    Setting s(name);
    StageShape shape = whole_model(s.spec, 2);
    double decode = 0, prefill = 0;
    for (size_t layers = 1; layers <= s.spec.n_layers; ++layers) {
      shape.n_layers = layers;
      const double d = decode_step(s.step, shape, 33, 1000).total_ms();
      const double p = prefill_step(s.step, shape, 511, 100).total_ms();
      ASSERT_GT(d, decode) << name << " " << layers;
      ASSERT_GT(p, prefill) << name << " " << layers;
      decode = d, prefill = p;
    }
  }
}

TEST(StepCost, AnotherChipsCurvesAreMarked) {
  Setting s("llama-3.1-8b");
  EXPECT_FALSE(decode_step(s.step, whole_model(s.spec, 1), 32, 1000).extrapolated);
  s.gpu = machine("a100-sxm");
  EXPECT_TRUE(decode_step(s.step, whole_model(s.spec, 1), 32, 1000).extrapolated);
}

}  // namespace
}  // namespace weft::planner
