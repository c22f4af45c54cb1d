// The planner's memory of a GPU rank against what its backend would take, for which it makes its
// stream and events.
#include <gtest/gtest.h>

#include "kernels/gpu_devices.h"
#include "parallel/device_mesh.h"
#include "planner/memory_model.h"
#include "runtime/gpu_backend.h"
#include "tests/support/small_model.h"
#include "tests/support/thread_communicator.h"

namespace weft::runtime {
namespace {

struct Case {
  size_t n_stages, tp, stage;
  planner::Numerics numerics;
  size_t sequences, batch_tokens;
};

class GpuMemory : public testing::TestWithParam<Case> {};

planner::Plan plan_of(const planner::ModelSpec& spec, const Case& c) {
  planner::Plan plan = test::even_plan(spec, c.n_stages, c.tp, DType::bf16);
  plan.limits = test::small_limits(c.sequences, c.batch_tokens, 77);
  plan.numerics = c.numerics;
  return plan;
}

planner::MemoryParts taken(const planner::ModelSpec& spec, const planner::Plan& plan,
                           const Case& c) {
  RankPlace place;
  place.mesh = parallel::make_mesh(plan);
  place.stage = c.stage;
  DecoderShape shape;
  shape.spec = spec;
  shape.shard = planner::shard_shapes(spec, c.tp, 0);
  shape.formats = plan.formats;
  shape.limits = plan.limits;
  shape.layers = plan.replicas.front().stages[c.stage].layers;
  shape.invariant = plan.numerics == planner::Numerics::invariant;
  test::ThreadHub hub(static_cast<int>(c.tp));
  test::ThreadCommunicator group(hub, 0);
  kernels::ThreadPool pool(1);
  kernels::Stream stream(pool);
  return gpu_memory_parts(place, shape, plan, group, {}, stream);
}

// Workspaces of kernels are counted to a few kilobytes.
TEST_P(GpuMemory, IsPlannedAsItIsTaken) {
  constexpr double kSlack = 32 << 10;
  const kernels::GpuQuery query = kernels::list_gpus();
  if (query.gpus.empty()) GTEST_SKIP() << query.why_none;
  const Case& c = GetParam();
  const planner::ModelSpec spec = test::six_layer_model();
  const planner::Plan plan = plan_of(spec, c);
  const planner::MemoryParts planned = rank_memory(spec, plan, c.stage, planner::Backend::cuda);
  const planner::MemoryParts real = taken(spec, plan, c);
  EXPECT_EQ(planned.weights, real.weights);
  EXPECT_EQ(planned.kv, real.kv);
  EXPECT_NEAR(static_cast<double>(planned.activations), static_cast<double>(real.activations),
              kSlack);
  EXPECT_NEAR(static_cast<double>(planned.buffers), static_cast<double>(real.buffers), kSlack);
}

INSTANTIATE_TEST_SUITE_P(Plans, GpuMemory,
                         testing::Values(Case{1, 1, 0, planner::Numerics::fast, 3, 512},
                                         Case{1, 1, 0, planner::Numerics::invariant, 40, 64},
                                         Case{1, 2, 0, planner::Numerics::fast, 5, 333},
                                         Case{3, 2, 0, planner::Numerics::invariant, 7, 100},
                                         Case{3, 1, 1, planner::Numerics::fast, 200, 256},
                                         Case{3, 2, 2, planner::Numerics::fast, 33, 2048}));

}  // namespace
}  // namespace weft::runtime
