// Sizes and what is refused before anything is measured.
#include "launch/links_options.h"

#include <gtest/gtest.h>

#include "tests/support/error_text.h"

namespace weft::launch {
namespace {

using Sizes = std::vector<size_t>;

LinkOptions with(LinkTest test, std::optional<size_t> min = {}, std::optional<size_t> max = {}) {
  LinkOptions options;
  options.test = test;
  options.min_bytes = min;
  options.max_bytes = max;
  return options;
}

TEST(LinkSizes, AreReadAndWritten) {
  EXPECT_EQ(parse_size("8", "--min"), 8u);
  EXPECT_EQ(parse_size("14K", "--min"), 14336u);
  EXPECT_EQ(parse_size("1.75M", "--min"), 1835008u);
  EXPECT_EQ(parse_size("1G", "--max"), size_t{1} << 30);
  for (const size_t bytes : Sizes{0, 1, 8, 1023, 14336, 1835008, size_t{3} << 30})
    EXPECT_EQ(parse_size(size_text(bytes), "--min"), bytes);
  EXPECT_EQ(size_text(1835008), "1792K");
  for (const char* bad : {"", "x", "8X", "-1", "1e3", "nan", "8 K", "1KiB"})
    EXPECT_ERROR(parse_size(bad, "--min"), "--min");
  EXPECT_ERROR(parse_size("0.3K", "--max"), "whole number of bytes");
  EXPECT_ERROR(parse_size("65G", "--max"), "more than 64G");
}

TEST(LinkPlans, GoByTheFactorFromTheSmallestToTheLargest) {
  LinkOptions options = with(LinkTest::all_reduce, 8, 100);
  EXPECT_EQ(plan_links(options, 4, false).sizes, (Sizes{8, 16, 32, 64}));
  options.factor = 3;
  EXPECT_EQ(plan_links(options, 4, false).sizes, (Sizes{8, 24, 72}));
  EXPECT_EQ(plan_links(with(LinkTest::p2p), 2, true).sizes, (Sizes{8, size_t{1} << 30}));
  EXPECT_EQ(plan_links(with(LinkTest::ring), 2, false).largest(), size_t{16} << 20);
  EXPECT_EQ(plan_links(with(LinkTest::ring), 2, true).largest(), size_t{1} << 30);
  // One float for each of three ranks.
  EXPECT_EQ(plan_links(with(LinkTest::all_gather), 3, false).sizes.front(), 12u);
  EXPECT_EQ(plan_links(with(LinkTest::all_to_all), 8, false).sizes.front(), 32u);
  options.graph = true;
  options.min_bytes = options.max_bytes = std::nullopt;
  EXPECT_EQ(plan_links(options, 8, true).sizes, (Sizes{14336, 114688, 458752, 1835008}));
  EXPECT_EQ(link_memory_bytes(plan_links(with(LinkTest::ring, 8, 1024), 2, true), true), 2048u);
}

TEST(LinkPlans, RefuseWhatCantBeMeasured) {
  for (const LinkTest test : {LinkTest::p2p, LinkTest::ring, LinkTest::all_reduce})
    EXPECT_ERROR(plan_links(with(test), 1, false), "mpirun -n 2");
  EXPECT_ERROR(plan_links(with(LinkTest::ring, 64, 8), 2, false), "--min 64 is more than --max 8");
  EXPECT_ERROR(plan_links(with(LinkTest::ring, 10), 2, false), "the next is 12");
  EXPECT_ERROR(plan_links(with(LinkTest::ring, 0), 2, false), "--min 0");
  EXPECT_ERROR(plan_links(with(LinkTest::all_gather, 8), 4, false),
               "16 bytes: one f32 for each of 4 ranks; the next is 16");
  EXPECT_ERROR(plan_links(with(LinkTest::p2p, 8, 1023), 2, false), "--max 1023");
  LinkOptions options = with(LinkTest::all_gather);
  options.graph = true;
  EXPECT_ERROR(plan_links(options, 2, false), "--pattern all-reduce, not all-gather");
  options = with(LinkTest::all_reduce);
  options.dtype = DType::bf16;
  EXPECT_ERROR(plan_links(options, 300, false), "not exact in bf16");
}

// All at once.
TEST(LinkPlans, ListEveryProblem) {
  LinkOptions options = with(LinkTest::ring, 66, 8);
  options.graph = true;
  for (const char* wanted : {"4 problems", "mpirun -n 2", "--graph", "multiple", "more than --max"})
    EXPECT_ERROR(plan_links(options, 1, false), wanted);
}

}  // namespace
}  // namespace weft::launch
