// Marks to spans, on the host's clock.
#include "runtime/step_clock.h"

#include <gtest/gtest.h>

namespace weft::runtime {
namespace {

TEST(StepClock, PartsFollowEachOtherToTheEndOfTheirBatch) {
  StepClock clock;
  mark(&clock, StepPart::host);
  mark(&clock, StepPart::qkv, 3);
  mark(&clock, StepPart::attention, 3);
  clock.end(7, true);
  mark(&clock, StepPart::head);
  clock.end(8, false);
  const std::vector<PartSpan>& spans = clock.spans();
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[1].part, StepPart::qkv);
  EXPECT_EQ(spans[1].layer, 3);
  EXPECT_EQ(spans[0].layer, -1);
  EXPECT_EQ(spans[2].batch, 7u);
  EXPECT_TRUE(spans[2].decodes);
  EXPECT_EQ(spans[3].batch, 8u);
  EXPECT_FALSE(spans[3].decodes);
  for (const PartSpan& span : spans) EXPECT_GE(span.us, 0);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_NEAR(spans[i].begin_us + spans[i].us, spans[i + 1].begin_us, 1e-6);
  EXPECT_GE(spans[3].begin_us, spans[2].begin_us + spans[2].us);
}

TEST(StepClock, ARankWithoutOneMarksNothing) {
  mark(nullptr, StepPart::qkv, 3);  // and reads nothing
}

TEST(StepClock, EveryPartHasAName) {
  for (const std::string_view name : kStepPartNames) EXPECT_FALSE(name.empty());
  EXPECT_EQ(kStepPartNames[static_cast<size_t>(StepPart::all_reduce)], "all-reduce");
  EXPECT_EQ(kStepPartNames[static_cast<size_t>(StepPart::host)], "host");
}

}  // namespace
}  // namespace weft::runtime
