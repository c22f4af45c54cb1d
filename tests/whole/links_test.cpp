// `weft bench links` as a user meets it, between CPU ranks: every pattern measured, every value
// right, the definitions kept, and bad input refused before anything is measured.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/gpu_devices.h"
#include "runtime/base/file.h"
#include "tests/support/command.h"

namespace weft::test {
namespace {

using nlohmann::json;

constexpr int kSeconds = 60;

std::vector<std::string> words(std::vector<std::string> more) {
  more.insert(more.begin(), {"bench", "links", "--backend", "cpu"});
  return more;
}

json measure(int n_ranks, std::vector<std::string> more) {
  more.insert(more.end(), {"--json", "--iterations", "3"});
  const CommandResult result = run_weft(n_ranks, words(more), kSeconds);
  EXPECT_EQ(result.status, 0) << result.err;
  return result.status == 0 ? json::parse(result.out) : json();
}

// algbw = size / time and busbw = algbw x factor, of what was printed.
void expect_times(const json& times, double bytes, double factor) {
  ASSERT_FALSE(times.is_null());
  EXPECT_EQ(times["wrong"], 0);
  const double us = times["us"], algbw = times["algbw_gbps"], busbw = times["busbw_gbps"];
  EXPECT_GT(us, 0);
  EXPECT_NEAR(algbw, bytes / us * 1e-3, 1e-9 + 1e-6 * algbw);
  EXPECT_NEAR(busbw, algbw * factor, 1e-9 + 1e-6 * busbw);
}

struct Pattern {
  std::string name;
  double factor_of_three;
  bool out_of_place;
  bool in_place;
};

TEST(BenchLinks, EveryPatternIsExactAndKeepsItsDefinition) {
  for (const Pattern& pattern :
       {Pattern{"all-reduce", 4.0 / 3, false, true}, Pattern{"all-gather", 2.0 / 3, true, true},
        Pattern{"all-to-all", 2.0 / 3, true, false}, Pattern{"ring", 1, true, false},
        Pattern{"send-recv", 1, true, false}}) {
    SCOPED_TRACE(pattern.name);
    const json found = measure(3, {"--pattern", pattern.name, "--max", "400K", "--factor", "32"});
    if (found.is_null()) continue;
    EXPECT_EQ(found["pattern"], pattern.name);
    EXPECT_EQ(found["ranks"], 3);
    EXPECT_EQ(found["hosts"], 1);
    EXPECT_EQ(found["transport"], "MPI");
    EXPECT_EQ(found["wrong"], 0);
    EXPECT_GT(found["measured_peak"]["gbps"].get<double>(), 0);
    EXPECT_TRUE(found["data_sheet"].is_null()) << "CPU ranks have none";
    ASSERT_EQ(found["rows"].size(), 4u);
    for (const json& row : found["rows"]) {
      const double bytes = row["bytes"];
      if (pattern.out_of_place) expect_times(row["out_of_place"], bytes, pattern.factor_of_three);
      if (pattern.in_place) expect_times(row["in_place"], bytes, pattern.factor_of_three);
      EXPECT_EQ(row["out_of_place"].is_null(), !pattern.out_of_place);
      EXPECT_EQ(row["in_place"].is_null(), !pattern.in_place);
    }
  }
}

TEST(BenchLinks, PairsMakeAMatrix) {
  const json found = measure(3, {"--max", "256K"});
  ASSERT_FALSE(found.is_null());
  ASSERT_EQ(found["ways"].size(), 1u);
  const json& way = found["ways"][0];
  EXPECT_EQ(way["way"], "MPI");
  EXPECT_EQ(way["wrong"], 0);
  for (const char* matrix : {"one_way_gbps", "two_way_gbps", "latency_us"})
    for (size_t from = 0; from < 3; ++from)
      for (size_t to = 0; to < 3; ++to) {
        const json& value = way[matrix][from][to];
        if (from == to)
          EXPECT_TRUE(value.is_null());
        else
          EXPECT_GT(value.get<double>(), 0) << matrix << " " << from << " " << to;
      }
  EXPECT_EQ(way["two_way_gbps"][0][2], way["two_way_gbps"][2][0]);
  EXPECT_EQ(found["paths"][0][1], "memory of a host");
}

TEST(BenchLinks, TypesOfSixteenBitsAreExactToo) {
  for (const char* dtype : {"bf16", "f16"}) {
    const json found =
        measure(4, {"--pattern", "all-reduce", "--dtype", dtype, "--max", "16K", "--factor", "16"});
    EXPECT_EQ(found["wrong"], 0) << dtype;
  }
}

TEST(BenchLinks, SumsOfDecodeStepsStandSideBySide) {
  const json found = measure(2, {"--pattern", "all-reduce", "--graph", "--dtype", "bf16"});
  ASSERT_EQ(found["sums"].size(), 4u);
  EXPECT_EQ(found["sums"][0]["bytes"], 14336);
  EXPECT_GT(found["sums"][3]["us"]["MPI"].get<double>(), 0);
}

TEST(BenchLinks, TheTableHasNcclTestsColumns) {
  const CommandResult result = run_weft(
      2, words({"--pattern", "all-gather", "--max", "64", "--iterations", "2", "--no-bind"}),
      kSeconds);
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {"#       size         count      type   redop    root     time   algbw   busbw #wrong",
        "ranks not bound", "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : "})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

TEST(BenchLinks, ThePageIsWritten) {
  const TemporaryFolder folder;
  measure(2, {"--max", "64K", "--html", folder / "links.html"});
  EXPECT_NE(read_text(folder / "links.html", 1 << 20).find("</html>"), std::string::npos);
}

// Two ranks on one GPU: mapped buffers, both kinds of copy, sums by peer memory in a graph.
TEST(BenchLinks, RanksThatShareAGpuAreExactToo) {
  const kernels::GpuQuery query = kernels::list_gpus();
  if (query.gpus.empty()) GTEST_SKIP() << "no GPU: " << query.why_none;
  const auto measure_on_gpu = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"bench", "links",        "--backend",
                                    "cuda",  "--share-gpus", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const CommandResult result = run_weft(2, all, kSeconds);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? json::parse(result.out) : json();
  };
  const json pairs = measure_on_gpu({"--max", "1M"});
  ASSERT_EQ(pairs["ways"].size(), 3u);
  EXPECT_EQ(pairs["ways"][0]["way"], "copy engine");
  EXPECT_EQ(pairs["ways"][1]["way"], "kernel");
  EXPECT_EQ(pairs["paths"][0][1], "the same GPU");
  EXPECT_EQ(pairs["wrong"], 0);
  const json sums =
      measure_on_gpu({"--pattern", "all-reduce", "--graph", "--max", "14K", "--min", "14K"});
  EXPECT_GT(sums["sums"][0]["us"]["peer one-shot"].get<double>(), 0);
  EXPECT_EQ(sums["wrong"], 0);
}

void expect_refused(int n_ranks, const std::vector<std::string>& more,
                    const std::vector<std::string>& parts) {
  const CommandResult result = run_weft(n_ranks, words(more), kSeconds);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(result.out, "") << "something was measured";
  for (const std::string& part : parts)
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
}

TEST(BenchLinks, BadInputIsRefusedBeforeAnythingIsMeasured) {
  const TemporaryFolder folder;
  expect_refused(1, {}, {"--pattern p2p", "there is one", "mpirun -n 2"});
  expect_refused(2, {"--pattern", "al-reduce"}, {"al-reduce", "did you mean \"all-reduce\""});
  expect_refused(2, {"--pattern", "ring", "--min", "1M", "--max", "1K"},
                 {"--min 1M is more than --max 1K"});
  expect_refused(2, {"--min", "10"}, {"--min 10", "the next is 12"});
  expect_refused(3, {"--pattern", "all-to-all", "--min", "8"}, {"each of 3 ranks"});
  expect_refused(2, {"--max", "lots"}, {"--max \"lots\" is no size"});
  expect_refused(2, {"--graph"}, {"--graph", "all-reduce"});
  expect_refused(2, {"--html", folder / "none/x.html"}, {"none/x.html"});
  expect_refused(2, {"--max", "64G"}, {"smaller --max"});
  expect_refused(2, {"--patern", "ring"}, {"--pattern"});
}

}  // namespace
}  // namespace weft::test
