// Layouts by hand: their text, balance, defaults and refusals.
#include "planner/manual_plan.h"

#include "planner/memory_model.h"
#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

constexpr size_t kGib = size_t{1} << 30;

ManualOptions with_memory(double gib) {
  ManualOptions options;
  options.rank_memory_bytes = static_cast<size_t>(gib * static_cast<double>(kGib));
  return options;
}

std::string refusal(const ModelSpec& spec, const std::string& layout,
                    const ManualOptions& options) {
  return error_of([&] { manual_plan(spec, parse_layout(layout), options); });
}

TEST(Layout, ReadsStagesInOrder) {
  const std::vector<StageLayout> layout = parse_layout("4x2,13x1,1x56");
  ASSERT_EQ(layout.size(), 3u);
  EXPECT_EQ(layout[1].n_layers, 13u);
  EXPECT_EQ(layout[1].tp, 1u);
  EXPECT_EQ(layout[2].tp, 56u);
}

TEST(Layout, NamesTheBadPart) {
  const auto bad = [](const char* text) { return error_of([&] { parse_layout(text); }); };
  EXPECT_EQ(bad("4x2,2"),
            "layout \"4x2,2\", stage 1 \"2\": write LAYERSxTP, as in 4x2 (4 layers on 2 ranks)");
  EXPECT_SAYS(bad(""), "stage 0 \"\": write LAYERSxTP");
  EXPECT_SAYS(bad("4x2,"), "stage 1 \"\"");
  EXPECT_SAYS(bad("4x2x1"), "write LAYERSxTP");
  EXPECT_SAYS(bad("4xtwo"),
              "stage 0 \"4xtwo\": TP: \"two\" is not a whole number from 0 to 1000000");
  EXPECT_SAYS(bad("-4x2"), "layers: \"-4\" is not a whole number");
  EXPECT_SAYS(bad("0x2"), "at least one layer");
  EXPECT_SAYS(bad("2x0"), "at least one rank");
  EXPECT_SAYS(bad("100001x1"), "from 0 to 100000");
  EXPECT_SAYS(bad("1x99999999999999999999"), "is not a whole number");
}

TEST(Layout, BalancesWithTheRemainderFirst) {
  const ModelSpec coder = model("deepseek-coder-33b");
  const std::vector<StageLayout> layout = balanced_layout(coder, 8, 4);
  ASSERT_EQ(layout.size(), 4u);
  EXPECT_EQ(layout[0].n_layers, 16u);
  EXPECT_EQ(layout[1].n_layers, 16u);
  EXPECT_EQ(layout[2].n_layers, 15u);
  EXPECT_EQ(layout[3].n_layers, 15u);
  EXPECT_EQ(layout[3].tp, 8u);
  EXPECT_EQ(balanced_layout(coder, 1, 62).back().n_layers, 1u);
  EXPECT_EQ(error_of([&] { balanced_layout(coder, 1, 63); }),
            "PP 63: 62 layers make 1 to 62 stages");
  EXPECT_SAYS(error_of([&] { balanced_layout(coder, 1, 0); }), "PP 0");
}

TEST(ManualPlan, FillsEverythingIn) {
  const ModelSpec spec = small_spec();
  ManualOptions options = with_memory(100);
  options.gpus_per_node = 3;
  const Plan plan = manual_plan(spec, parse_layout("4x2,2x2"), options);
  EXPECT_EQ(layout_text(plan), "4x2,2x2");
  EXPECT_EQ(world_size(plan), 4u);
  EXPECT_EQ(plan.model_name, "small");
  EXPECT_EQ(plan.facts_sha256, facts_sha256(spec));
  EXPECT_EQ(plan.limits.context, 1024u);
  EXPECT_EQ(plan.limits.max_sequences, 64u);
  EXPECT_EQ(plan.limits.max_batch_tokens, 2048u);
  EXPECT_EQ(plan.limits.prefill_chunk, 512u);
  EXPECT_EQ(plan.limits.batches_in_flight, 2u);
  EXPECT_EQ(plan.limits.kv_blocks, 64u * 1024 / 64);
  EXPECT_EQ(plan.replicas[0].stages[1].slots, (std::vector<Slot>{{0, 2}, {1, 0}}));
  EXPECT_EQ(plan.predicted.edge_token_bytes, std::vector<size_t>{2 * spec.hidden});
  EXPECT_TRUE(problems(plan, spec).empty());
  EXPECT_EQ(parse_plan_yaml(to_yaml(plan), "again"), plan);
}

TEST(ManualPlan, DefaultsFitTheMemoryWithATenthFree) {
  const ModelSpec coder = model("deepseek-coder-33b");
  const Plan plan = manual_plan(coder, parse_layout("31x8,31x8"), with_memory(10));
  EXPECT_EQ(plan.limits.context, 16384u);
  EXPECT_LT(plan.limits.kv_blocks, 64u * 256);
  EXPECT_GE(plan.limits.kv_blocks, 256u);
  size_t largest = 0;
  for (const MemoryParts& memory : plan.predicted.rank_memory)
    largest = std::max(largest, memory.total());
  EXPECT_LE(largest, 9 * kGib);
  EXPECT_GT(largest + kv_block_bytes(coder, plan, 0), 9 * kGib);  // one block more would not fit
}

TEST(ManualPlan, AnUnsetContextIsShortenedBeforeTheLayoutIsRefused) {
  const ModelSpec coder = model("deepseek-coder-33b");
  const Plan tight = manual_plan(coder, parse_layout("62x8"), with_memory(8.5));
  EXPECT_LT(tight.limits.context, 16384u);
  EXPECT_EQ(tight.limits.context, tight.limits.kv_blocks * 64);
  ManualOptions asked = with_memory(8.5);
  asked.context = 16384;
  EXPECT_SAYS(refusal(coder, "62x8", asked), "stage 0: short ");
}

TEST(ManualPlan, GivenValuesAreKept) {
  ManualOptions options = with_memory(100);
  options.context = 100;
  options.max_sequences = 3;
  options.max_batch_tokens = 33;
  options.batches_in_flight = 5;
  options.kv_blocks = 7;
  const Plan plan = manual_plan(small_spec(), parse_layout("6x1"), options);
  EXPECT_EQ(plan.limits.context, 100u);
  EXPECT_EQ(plan.limits.max_sequences, 3u);
  EXPECT_EQ(plan.limits.prefill_chunk, 33u);  // never above a batch
  EXPECT_EQ(plan.limits.batches_in_flight, 5u);
  EXPECT_EQ(plan.limits.kv_blocks, 7u);
  options.context.reset();
  EXPECT_EQ(manual_plan(small_spec(), parse_layout("6x1"), options).limits.context, 7u * 64);
}

TEST(ManualPlan, EveryProblemIsListedAtOnce) {
  const ModelSpec coder = model("deepseek-coder-33b");
  ManualOptions options = with_memory(0.5);
  options.context = 20'000;
  const std::string text = refusal(coder, "30x7,31x16,4x8", options);
  EXPECT_SAYS(text, "plan 30x7,31x16,4x8: 5 problems:");
  EXPECT_SAYS(text, "context 20000 is beyond the model's 16384");
  EXPECT_SAYS(text, "the stages have 65 layers, the model has 62");
  EXPECT_SAYS(
      text, "stage 0: TP 7: 8 KV heads are neither divided by it nor divide it; legal: 1 2 4 8 56");
  EXPECT_SAYS(text, "stage 1: TP 16: does not divide 56 heads; legal: 1 2 4 8 56");
  EXPECT_SAYS(text, "stage 2: short ");
}

TEST(ManualPlan, LayersMissingOrTooMany) {
  EXPECT_EQ(
      refusal(small_spec(), "4x1,1x1", with_memory(100)),
      "plan 4x1,1x1: layers [5, 6) are in no stage: the last ends at 5, the model has 6 layers");
  EXPECT_SAYS(refusal(small_spec(), "7x1", with_memory(100)),
              "the stages have 7 layers, the model has 6");
}

TEST(ManualPlan, InvariantNumericsNarrowTheWidth) {
  const ModelSpec coder = model("deepseek-coder-33b");
  ManualOptions options = with_memory(100);
  EXPECT_SAYS(
      refusal(coder, "62x56", options),
      "TP 56 does not divide the 8 fixed chunks of invariant numerics; legal: 1 2 4 8 56 (56 "
      "by --numerics fast)");
  options.numerics = Numerics::fast;
  EXPECT_EQ(world_size(manual_plan(coder, parse_layout("62x56"), options)), 56u);
}

TEST(ManualPlan, MixturesOfExpertsAreRefusedByThatName) {
  EXPECT_SAYS(refusal(model("mixtral-8x7b"), "32x8", with_memory(100)),
              "model mixtral-8x7b has 8 experts: mixtures of experts are not executed yet");
}

TEST(ManualPlan, BadValuesAreRefusedBeforeAnythingIsMade) {
  ManualOptions options = with_memory(100);
  options.kv_blocks = 0;
  options.max_sequences = 1'000'001;
  options.gpus_per_node = 0;
  const std::string text = refusal(small_spec(), "6x1000000,1x1000000", options);
  EXPECT_SAYS(text, "plan: 4 problems:");
  EXPECT_SAYS(text, "kv_blocks 0 is not from 1 to");
  EXPECT_SAYS(text, "max_sequences 1000001 is not from 1 to 1000000");
  EXPECT_SAYS(text, "gpus_per_node 0");
  EXPECT_SAYS(text, "the layout has 2000000 ranks; at most 1000000 are planned");
  ModelSpec spec = small_spec();
  spec.hidden = 0;
  EXPECT_SAYS(refusal(spec, "6x1", with_memory(1)), "model small: hidden 0 is not from 1 to");
}

}  // namespace
}  // namespace weft::planner
