// The cost model as the search asks for it.
#include "planner/cost_model.h"

#include <random>

#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

TEST(CostModel, ChunksOfAPrompt) {
  EXPECT_EQ(prompt_chunks(2000, 512), 4u);
  EXPECT_EQ(prompt_chunks(2048, 512), 4u);
  EXPECT_EQ(prompt_chunks(2049, 512), 5u);
  EXPECT_EQ(prompt_chunks(1, 8192), 1u);
}

TEST(CostModel, APromptCostsTheSameSumHoweverItIsChunked) {
  const CostModel costs(cost_setting("qwen3-32b", "h100-sxm"));
  const StageShape shape = whole_model(costs.setting().model, 4);
  const double whole = costs.stage(shape, schedule(32, 1, 2048)).prefill_ms;
  const double chunked = 4 * costs.stage(shape, schedule(32, 1, 512)).prefill_ms;
  EXPECT_GT(chunked, whole);  // small products are slower
  EXPECT_LT(chunked, 2 * whole);
}

TEST(CostModel, EachBatchInFlightDecodesItsShare) {
  const CostModel costs(cost_setting("qwen3-32b", "h100-sxm"));
  const StageShape shape = whole_model(costs.setting().model, 4);
  EXPECT_EQ(costs.stage(shape, schedule(63, 2)).decode_ms,
            costs.stage(shape, schedule(32, 1)).decode_ms);
}

// 300 random pairs of stages or edges that differ in layers alone.
TEST(CostModel, MoreLayersCostMore) {
  for (const std::string name : {"deepseek-coder-33b", "qwen3-30b-a3b"}) {
    CostSetting setting = cost_setting(name, "h200-sxm");
    setting.nodes.push_back({machine("h100-sxm"), 40, {25, 5}});
    const CostModel costs(setting);
    std::mt19937 random(7);
    const std::vector<size_t> widths = legal_tp(setting.model);
    for (int i = 0; i < 150; ++i) {
      StageShape shape;
      shape.n_layers = 1 + random() % (setting.model.n_layers - 1);
      shape.tp = widths[random() % std::min<size_t>(4, widths.size())];
      shape.node_class = random() % 2;
      shape.n_nodes = 1 + random() % 2;
      shape.has_embedding = random() % 2;
      shape.has_head = random() % 2;
      const Schedule at = schedule(1 + random() % 300, 1 + random() % 4, 512 << random() % 5);
      StageShape longer = shape;
      ++longer.n_layers;
      const StageTimes a = costs.stage(shape, at), b = costs.stage(longer, at);
      ASSERT_GT(b.prefill_ms, a.prefill_ms) << name << " draw " << i;
      ASSERT_GT(b.decode_ms, a.decode_ms) << name << " draw " << i;
      ASSERT_GT(costs.fixed_bytes(longer, at), costs.fixed_bytes(shape, at));
      ASSERT_GT(costs.kv_block_bytes(longer), costs.kv_block_bytes(shape));
    }
  }
}

TEST(CostModel, EdgesCostMoreBetweenNodesAndBetweenWidths) {
  const CostModel costs(cost_setting("deepseek-coder-33b", "h100-sxm"));
  const Schedule at = schedule(32, 2, 512);
  const StageTimes inside = costs.edge({1, 1, 0, 0, false}, at);
  const StageTimes across = costs.edge({1, 1, 0, 0, true}, at);
  const StageTimes sliced = costs.edge({8, 8, 0, 0, true}, at);
  EXPECT_GT(inside.decode_ms, 0);
  EXPECT_GT(inside.prefill_ms, inside.decode_ms);
  EXPECT_GT(across.prefill_ms, inside.prefill_ms);
  EXPECT_LT(sliced.prefill_ms, across.prefill_ms);  // eight slices over as many cards
}

// 62 layers of eight KV heads of 128 numbers: 253,952 bytes a token in bf16, over 50 GB/s.
TEST(CostModel, AHandOverSendsTheChunksKeysAndValuesOverTheLink) {
  CostSetting setting = cost_setting("deepseek-coder-33b", "h100-sxm");
  setting.nodes[0].link = {25, 5};
  const CostModel costs(setting);
  const double bytes = 512 * 253952.0;
  const double one = costs.handover_ms({1, 1, 0, 0, true}, 62, schedule(32));
  EXPECT_GT(one, bytes / 25e6);
  EXPECT_LT(one, 1.3 * bytes / 25e6);
  EXPECT_LT(costs.handover_ms({4, 4, 0, 0, true}, 62, schedule(32)), one / 3);
  EXPECT_GT(costs.handover_ms({4, 2, 0, 0, true}, 62, schedule(32)), one / 3);
  EXPECT_LT(costs.handover_ms({1, 1, 0, 0, false}, 62, schedule(32)), one);
  // A stage of half the layers has half of them to send when it is done.
  const double half = costs.handover_ms({1, 1, 0, 0, true}, 31, schedule(32));
  EXPECT_NEAR(half, one / 2, 0.05 * one);
  setting.kv_key = setting.kv_value = NumberFormat::fp8;
  EXPECT_LT(CostModel(setting).handover_ms({1, 1, 0, 0, true}, 62, schedule(32)), 0.6 * one);
}

TEST(CostModel, LinksOfOtherRatesThanTheCurvesScaleTheBytesAndSaySo) {
  CostSetting setting = cost_setting("deepseek-coder-33b", "h100-sxm");
  const EdgeShape inside = {2, 2, 0, 0, false};
  const Schedule at = schedule(32, 1, 2048);
  const CostModel measured(setting);
  EXPECT_FALSE(measured.edge_extrapolated(inside, at));
  setting.nodes[0].machine.rates.nvlink_gbps /= 2;
  const CostModel slow(setting);
  EXPECT_TRUE(slow.edge_extrapolated(inside, at));
  EXPECT_GT(slow.edge(inside, at).prefill_ms, 1.3 * measured.edge(inside, at).prefill_ms);
  EXPECT_LT(slow.edge(inside, at).prefill_ms, 2 * measured.edge(inside, at).prefill_ms);
  const StageShape shape = whole_model(setting.model, 8);
  EXPECT_GT(slow.prefill_parts(shape, at).collectives_ms,
            measured.prefill_parts(shape, at).collectives_ms);
  EXPECT_TRUE(slow.prefill_parts(shape, at).extrapolated);
}

TEST(CostModel, OnePhaseAloneIsThatOfBoth) {
  const CostModel costs(cost_setting("qwen3-30b-a3b", "h200-sxm"));
  const StageShape shape = whole_model(costs.setting().model, 2);
  const StageTimes both = costs.stage(shape, schedule(31, 2, 1024));
  EXPECT_EQ(costs.prefill_ms(shape, schedule(31, 2, 1024)), both.prefill_ms);
  EXPECT_EQ(costs.decode_ms(shape, schedule(31, 2, 1024)), both.decode_ms);
}

// A host whose ranks were timed: weft's own times stand for the engine's, the curve of as many
// ranks as the stage has is taken, and a profile of one rank prices no other.
TEST(CostModel, TimedOverheadsStandForTheEnginesOwn) {
  CostSetting setting = cost_setting("deepseek-coder-1.3b", "cpu");
  MachineProfile& cpu = setting.nodes[0].machine;
  OverheadCurve alone{1, "a test", 100, 10, 2, 3, 4}, two{2, "a test", 200, 20, 2, 3, 4};
  cpu.overheads = {alone};
  const StageShape one = whole_model(setting.model, 1), both = whole_model(setting.model, 2);
  const double vocab_us = 4.0 * static_cast<double>(setting.model.vocab) / 4 * 1e-3;
  const StepParts parts = CostModel(setting).decode_parts(one, schedule(1));
  EXPECT_NEAR(parts.host_ms, (100 + 3 + vocab_us) * 1e-3, 1e-9);
  const double passes_us = layer_pass_bytes(1, 2048) / 2 * 1e-3;
  EXPECT_NEAR(parts.other_ms, 24 * (10 + passes_us) * 1e-3, 1e-9);
  const double before = CostModel(setting).decode_parts(both, schedule(1)).host_ms;
  cpu.overheads.push_back(two);
  EXPECT_NEAR(CostModel(setting).decode_parts(both, schedule(1)).host_ms - before, 0.1, 1e-9);
  setting.engine.name = "another";
  EXPECT_NEAR(CostModel(setting).decode_parts(one, schedule(1)).host_ms,
              setting.engine.constants.step_us * 1e-3 + setting.engine.constants.sequence_us * 1e-3,
              1e-9);
  cpu.send_recv_inside.clear();
  EXPECT_SAYS(error_of([&] {
                CostModel(setting).edge({1, 1, 0, 0, false}, schedule(1));
              }),
              "calibrate it under mpirun with two ranks or more");
}

// What ranks wait for one another is a share of their own work, and a rank alone waits for none.
TEST(CostModel, WaitsAtSumsAreAShareOfTheRanksOwnWork) {
  CostSetting setting = cost_setting("deepseek-coder-1.3b", "cpu");
  MachineProfile& cpu = setting.nodes[0].machine;
  cpu.overheads = {{1, "a test", 100, 10, 2, 3, 4}, {2, "a test", 200, 20, 2, 3, 4}};
  const StageShape one = whole_model(setting.model, 1), both = whole_model(setting.model, 2);
  const CostModel without(setting);
  for (OverheadCurve& curve : cpu.overheads) curve.wait_share = 0.25;
  const CostModel with(setting);
  for (const auto phase : {&CostModel::decode_parts, &CostModel::prefill_parts}) {
    const StepParts before = (without.*phase)(both, schedule(1));
    const StepParts after = (with.*phase)(both, schedule(1));
    const double own = before.products_ms + before.attention_ms + before.other_ms + before.head_ms;
    EXPECT_GT(own, 0);
    EXPECT_NEAR(after.collectives_ms - before.collectives_ms, 0.25 * own, 1e-9 * own);
    EXPECT_EQ((with.*phase)(one, schedule(1)).total_ms(),
              (without.*phase)(one, schedule(1)).total_ms());
  }
}

TEST(CostModel, MemoryOfAGpuIsTheEnginesShareOfIt) {
  CostSetting setting = cost_setting("llama-3.1-8b", "h100-sxm");
  setting.engine.habits.memory_fraction = 0.5;
  setting.nodes.push_back({machine("h100-sxm"), 40, {}});
  const CostModel costs(setting);
  EXPECT_EQ(costs.rank_memory_bytes(0), static_cast<size_t>(79.6 * 0.5 * (size_t{1} << 30)));
  EXPECT_EQ(costs.rank_memory_bytes(1), size_t{20} << 30);
}

TEST(CostModel, NeedsANodeAndAPrompt) {
  CostSetting setting = cost_setting("llama-3.1-8b", "h100-sxm");
  setting.prompt_tokens = 0;
  EXPECT_SAYS(error_of([&] { CostModel costs(setting); }), "prompt_tokens 0");
  setting.prompt_tokens = 1;
  setting.nodes.clear();
  EXPECT_SAYS(error_of([&] { CostModel costs(setting); }), "no class of nodes");
}

}  // namespace
}  // namespace weft::planner
