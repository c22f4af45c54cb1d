// Bytes of a GPU rank against sums done by hand.
#include "planner/gpu_memory.h"

#include "planner/plan.h"
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
  GpuMemory memory(const StageShape& shape) const { return gpu_memory(step, shape, 33, 512, 2); }
};

TEST(GpuMemory, WeightsOfOneRankAreTheCheckpoint) {
  for (const std::string name :
       {"deepseek-coder-33b", "llama-3.1-405b", "mixtral-8x7b", "qwen3-235b-a22b"}) {
    const Setting s(name);
    EXPECT_EQ(s.memory(whole_model(s.spec, 1)).weights, 2 * n_parameters(s.spec)) << name;
  }
}

TEST(GpuMemory, NarrowFormatsHoldTheirScales) {
  Setting s("llama-3.1-70b");
  StageShape shape = whole_model(s.spec, 1);
  shape.has_embedding = shape.has_head = false;
  const double matrices = layer_active_weights(s.spec) * 80;
  const double norms = 80.0 * 2 * 8192 * 2;
  s.step.weights = NumberFormat::fp8;  // a f32 for 128 x 128
  EXPECT_EQ(static_cast<double>(s.memory(shape).weights), matrices + matrices / 16384 * 4 + norms);
  s.step.weights = NumberFormat::int4;  // a f16 for 128
  EXPECT_EQ(static_cast<double>(s.memory(shape).weights),
            matrices / 2 + matrices / 128 * 2 + norms);
}

TEST(GpuMemory, ExpertRanksHoldWholeExperts) {
  const Setting s("qwen3-235b-a22b");
  StageShape shape = whole_model(s.spec, 8);
  const size_t sliced = s.memory(shape).weights;
  shape.ep = 8;
  EXPECT_EQ(s.memory(shape).weights, sliced);
  shape.ep = 3;
  EXPECT_SAYS(error_of([&] { s.memory(shape); }), "ep 3 does not divide the 8 ranks");
}

TEST(GpuMemory, KvBlocksFollowHeadsLayersAndFormat) {
  Setting s("deepseek-coder-33b");
  StageShape shape = whole_model(s.spec, 1);
  EXPECT_EQ(gpu_kv_block_bytes(s.step, shape), kKvBlockTokens * 253952);  // design.md
  shape.tp = 8;
  shape.n_layers = 31;
  EXPECT_EQ(gpu_kv_block_bytes(s.step, shape), kKvBlockTokens * 253952 / 16);
  shape.tp = 56;  // seven ranks hold the same KV head
  EXPECT_EQ(gpu_kv_block_bytes(s.step, shape), kKvBlockTokens * 253952 / 16);
  s.step.kv_key = NumberFormat::fp8;
  EXPECT_EQ(gpu_kv_block_bytes(s.step, shape), kKvBlockTokens * 253952 / 16 * 3 / 4);
}

TEST(GpuMemory, PartsFollowWhatNeedsThem) {
  const Setting s("deepseek-coder-33b");
  StageShape middle = whole_model(s.spec, 2);
  middle.n_layers = 20;
  middle.has_embedding = middle.has_head = false;
  StageShape last = middle;
  last.has_head = true;
  EXPECT_GT(s.memory(last).weights, s.memory(middle).weights);
  EXPECT_GT(s.memory(last).buffers, s.memory(middle).buffers);  // logits
  EXPECT_EQ(s.memory(last).reserve, size_t{2} << 30);
  EXPECT_GT(gpu_memory(s.step, middle, 33, 8192, 2).activations,
            10 * gpu_memory(s.step, middle, 33, 512, 2).activations);
  EXPECT_EQ(s.memory(whole_model(s.spec, 1)).buffers, 33 * 32256 * 4 * 2);
}

TEST(GpuMemory, RefusesWhatCannotBeSplitOrCounted) {
  const Setting s("deepseek-coder-33b");
  EXPECT_SAYS(error_of([&] { s.memory(whole_model(s.spec, 16)); }), "56");
  StageShape huge = whole_model(s.spec, 1);
  huge.n_layers = size_t{1} << 40;
  EXPECT_SAYS(error_of([&] { s.memory(huge); }), "beyond planning");
}

}  // namespace
}  // namespace weft::planner
