// Bytes of a rank, against sums done by hand.
#include "planner/memory_model.h"

#include "planner/manual_plan.h"
#include "planner/plan_messages.h"
#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

constexpr size_t kGib = size_t{1} << 30;

Plan plan_for(const ModelSpec& spec, const std::string& layout, size_t memory = 1000 * kGib) {
  ManualOptions options;
  options.rank_memory_bytes = memory;
  return manual_plan(spec, parse_layout(layout), options);
}

size_t aligned(size_t elements) { return (elements * 2 + 63) / 64 * 64; }

TEST(MemoryModel, WeightsOfOneRankAreTheTensorsOfTheCheckpoint) {
  const ModelSpec coder = model("deepseek-coder-33b");  // nothing is padded at TP 1
  EXPECT_EQ(weight_bytes(coder, plan_for(coder, "62x1"), 0), n_parameters(coder) * 2);
}

TEST(MemoryModel, WeightsCountPaddingBiasesAndReplicatedHeads) {
  ModelSpec spec = small_spec();
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = spec.qk_norm = true;
  spec.vocab = 2049;
  // TP 4: 2 query heads, 1 KV head that two ranks hold; FFN 344 padded to 384, vocabulary to 2112.
  const size_t h = 2 * 32, kv = 1 * 32, f = 96, v = 528, hidden = 256;
  const size_t layer = aligned(hidden) * 2 + aligned((h + 2 * kv) * hidden) + aligned(h + 2 * kv) +
                       aligned(32) * 2 + aligned(hidden * h) + aligned(hidden) +
                       aligned(2 * f * hidden) + aligned(2 * f) + aligned(hidden * f) +
                       aligned(hidden);
  const Plan plan = plan_for(spec, "4x4,2x4");
  EXPECT_EQ(weight_bytes(spec, plan, 0), 4 * layer + aligned(v * hidden));
  EXPECT_EQ(weight_bytes(spec, plan, 1), 2 * layer + aligned(hidden) + aligned(v * hidden));
}

TEST(MemoryModel, ATiedHeadIsHeldOnceWhereBothEndsAre) {
  ModelSpec spec = small_spec();
  const size_t table = aligned(spec.vocab * spec.hidden);
  const size_t untied = weight_bytes(spec, plan_for(spec, "6x1"), 0);
  const size_t untied_last = weight_bytes(spec, plan_for(spec, "3x1,3x1"), 1);
  spec.tied_embeddings = true;
  EXPECT_EQ(weight_bytes(spec, plan_for(spec, "6x1"), 0), untied - table);
  EXPECT_EQ(weight_bytes(spec, plan_for(spec, "3x1,3x1"), 1), untied_last);
}

TEST(MemoryModel, KvOfAToken) {
  const ModelSpec coder = model("deepseek-coder-33b");
  EXPECT_EQ(kv_block_bytes(coder, plan_for(coder, "62x1"), 0), 253'952 * kKvBlockTokens);
  EXPECT_EQ(kv_block_bytes(coder, plan_for(coder, "31x8,31x8"), 1), 253'952 * kKvBlockTokens / 16);
  ModelSpec spec = small_spec();  // 2 KV heads: TP 4 and TP 8 hold one on every rank
  EXPECT_EQ(kv_block_bytes(spec, plan_for(spec, "6x4"), 0),
            kv_block_bytes(spec, plan_for(spec, "6x8"), 0));
}

TEST(MemoryModel, PartsAddUpAndFollowTheLimits) {
  const ModelSpec spec = small_spec();
  Plan plan = plan_for(spec, "4x2,2x1");
  const MemoryParts before = rank_memory(spec, plan, 0);
  EXPECT_EQ(before, plan.predicted.rank_memory[0]);
  EXPECT_EQ(before.kv, plan.limits.kv_blocks * kv_block_bytes(spec, plan, 0));
  EXPECT_EQ(before.total(), before.weights + before.kv + before.activations + before.buffers);
  // A row: 2 x 256 + (4 + 2) x 32 + 4 x 32 + 3 x 192 bf16, and 256 f32; 2 more for the edge's
  // slices, which take a cache line. 4 query heads a KV head: tiles of 32 query rows, each thread.
  const size_t rows = (512 + 192 + 128 + 576) * 2 + 256 * 4;
  const size_t tile = 32 * (3 * 32 + 512) + 64 * 32 + 64 + 24 * 1024 + 24 * 96 * 16;
  EXPECT_EQ(before.activations, 2048 * rows + 64 + kAssumedThreads * tile * 4);
  plan.limits.max_batch_tokens = 16384;
  plan.limits.kv_blocks *= 3;
  const MemoryParts after = rank_memory(spec, plan, 0);
  EXPECT_EQ(after.kv, 3 * before.kv);
  EXPECT_EQ(after.weights, before.weights);
  // Now a product's scratch is the larger: 2 x 192 outputs and 256 inputs.
  EXPECT_EQ(after.activations, 16384 * (rows + (384 + 256 + 128) * 4) + 64);
  EXPECT_GT(after.buffers, before.buffers);
}

TEST(MemoryModel, TheLastStageHoldsLogits) {
  const ModelSpec spec = small_spec();
  const Plan plan = plan_for(spec, "3x2,3x2");
  const size_t edge = 2 * 2048 * 256 * 2;
  const size_t scheduler = 1024 * 4 + 64 * (28 + 2 * 8);
  const size_t sampler =
      64 * (2 * 256 * 2 + 1024 * 3 * 4 + 2048 + 40 + (256 + 1024 + 128) * 4) + 16 * 2048 * 20;
  EXPECT_EQ(rank_memory(spec, plan, 1).buffers,
            rank_memory(spec, plan, 0).buffers - edge - scheduler + sampler);
}

TEST(MemoryModel, MessagesAreKeptForEveryBatchInFlight) {
  const ModelSpec spec = small_spec();
  Plan plan = plan_for(spec, "2x1,2x1,2x1");
  const size_t batch = 32 + 64 * 48 + 2048 * 4 + 1024 * 4;
  const size_t results = 16 + 64 * 203 * 4;
  EXPECT_EQ(batch_bytes(plan.limits), batch);
  EXPECT_EQ(result_bytes(plan.limits), results);
  const auto buffers = [&](size_t stage) { return rank_memory(spec, plan, stage).buffers; };
  const size_t first = buffers(0), middle = buffers(1), last = buffers(2);
  plan.limits.batches_in_flight += 2;
  EXPECT_EQ(buffers(0) - first, 2 * (batch + results) + 64 * 2 * 8);
  EXPECT_EQ(buffers(1) - middle, 2 * batch);
  EXPECT_EQ(buffers(2) - last, 2 * (batch + results));
}

TEST(MemoryModel, ShortagesAreSaidWithTheirParts) {
  const ModelSpec coder = model("deepseek-coder-33b");
  const Plan plan = plan_for(coder, "31x1,31x1");
  const std::vector<std::string> found = memory_problems(coder, plan, 10 * kGib);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_SAYS(found[0], "stage 0: short ");
  EXPECT_SAYS(found[0], " GiB: weights 31.1 + KV ");
  EXPECT_SAYS(found[0], " of 10.0 GiB");
  EXPECT_SAYS(found[1], "stage 1: short ");
  EXPECT_TRUE(memory_problems(coder, plan, 1000 * kGib).empty());
}

TEST(MemoryModel, OverflowIsAnErrorAndNoSmallNumber) {
  ModelSpec spec = small_spec();
  spec.n_layers = 100'000;
  Plan plan = plan_for(small_spec(), "6x1");
  plan.replicas[0].stages[0].layers.end = spec.n_layers;
  plan.limits.kv_blocks = size_t{1} << 40;
  EXPECT_SAYS(error_of([&] { rank_memory(spec, plan, 0); }), "beyond what can be planned");
}

TEST(MemoryModel, GibKeepsThreeDigits) {
  EXPECT_EQ(gib_text(61 * kGib), "61.0");
  EXPECT_EQ(gib_text(5 * kGib / 4), "1.25");
  EXPECT_EQ(gib_text(kGib / 8), "0.125");
  EXPECT_EQ(gib_text(kGib / 80), "0.0125");
}

}  // namespace
}  // namespace weft::planner
