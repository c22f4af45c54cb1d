// CPU ranks: a plan of what was priced never needs more than was priced.
#include "planner/host_costs.h"

#include "planner/memory_model.h"
#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

constexpr Formats kBf16 = {DType::bf16, DType::bf16, DType::bf16, DType::bf16};
constexpr size_t kContext = 1000;

CostSetting host_setting() {
  CostSetting setting = cost_setting("deepseek-coder-1.3b", "cpu");
  setting.model = small_spec();
  return setting;
}

Plan plan_of_stages(const ModelSpec& spec, const Schedule& schedule, size_t kv_blocks) {
  Plan plan;
  plan.model_name = spec.name;
  plan.facts_sha256 = facts_sha256(spec);
  plan.formats = kBf16;
  plan.limits = {kContext,
                 schedule.batch,
                 schedule.prefill_chunk + schedule.batch,
                 schedule.prefill_chunk,
                 schedule.batches_in_flight,
                 kv_blocks,
                 {}};
  Stage first, last;
  first.layers = {0, 4};
  first.tp = 2;
  last.layers = {4, 6};
  plan.replicas.push_back({1, {first, last}});
  return plan;
}

TEST(HostCosts, HoldWhatThePlanOfTheirStagesHolds) {
  const CostModel model(host_setting());
  const HostCosts costs(model, kBf16, Numerics::invariant, kContext, 3);
  const StageShape shapes[] = {{4, true, false, 2, 1, 0, 1}, {2, false, true, 1, 1, 0, 1}};
  for (const Schedule& schedule : {Schedule{1, 1, 512}, Schedule{7, 3, 33}, Schedule{64, 4, 2048}})
    for (const size_t blocks : {1, 31, 640})
      for (size_t s = 0; s < 2; ++s) {
        const Plan plan = plan_of_stages(small_spec(), schedule, blocks);
        const size_t needed = rank_memory(small_spec(), plan, s).total();
        const size_t priced =
            costs.fixed_bytes(shapes[s], schedule) + blocks * costs.kv_block_bytes(shapes[s]);
        EXPECT_GE(priced, needed) << "stage " << s << ", batch " << schedule.batch;
        EXPECT_LE(priced, needed + needed / 50) << "stage " << s << ", " << blocks << " blocks";
      }
}

TEST(HostCosts, PartsAddUp) {
  const CostModel model(host_setting());
  const HostCosts costs(model, kBf16, Numerics::invariant, kContext, 4);
  const StageShape shape = whole_model(small_spec(), 2);
  size_t sum = 0;
  for (const BytesPart& part : costs.fixed_parts(shape, {8, 2, 512})) sum += part.bytes;
  EXPECT_EQ(sum, costs.fixed_bytes(shape, {8, 2, 512}));
}

TEST(HostCosts, TimesAreTheCurves) {
  const CostModel model(host_setting());
  const HostCosts costs(model, kBf16, Numerics::invariant, kContext, 4);
  const StageShape shape = whole_model(small_spec(), 1);
  EXPECT_EQ(costs.stage(shape, {8, 2, 512}).decode_ms, model.stage(shape, {8, 2, 512}).decode_ms);
}

}  // namespace
}  // namespace weft::planner
