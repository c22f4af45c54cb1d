// nccl-tests' definitions by hand-worked numbers, slow pairs, and the text against recorded
// examples.
#include "launch/links_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/file.h"

namespace weft::launch {
namespace {

using nlohmann::json;

const std::string kData = std::string(WEFT_SOURCE_DIR) + "/tests/data/links/";
const double kNone = std::nan("");

// 1 GiB in 5 ms: 1,073,741,824 / 0.005 = 214.748 GB/s. Over 8 ranks an all-reduce loads each link
// with 2 x 7 / 8 of it.
TEST(LinkDefinitions, AreThoseOfNcclTests) {
  const size_t gib = size_t{1} << 30;
  const LinkTimes sum = link_times(LinkTest::all_reduce, 8, gib, 5000, 0);
  EXPECT_NEAR(sum.algorithm_gbps, 214.748, 0.001);
  EXPECT_NEAR(sum.bus_gbps, 375.810, 0.001);
  EXPECT_DOUBLE_EQ(bus_factor(LinkTest::all_reduce, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(LinkTest::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(LinkTest::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(LinkTest::all_to_all, 8), 0.875);
  for (const LinkTest test : {LinkTest::ring, LinkTest::send_recv, LinkTest::p2p})
    EXPECT_DOUBLE_EQ(bus_factor(test, 8), 1);
  EXPECT_DOUBLE_EQ(algorithm_gbps(1000, 0), 0) << "a clock that did not move";
}

LinkReport four_gpus() {
  LinkReport report;
  report.n_ranks = 4;
  report.device = "NVIDIA H200";
  report.transport = "NCCL";
  report.latency_bytes = 8;
  report.rate_bytes = size_t{256} << 20;
  report.host_of = {0, 0, 0, 0};
  for (const char* bus : {"18", "2a", "3a", "5d"})
    report.places.push_back(std::string("nodeA, GPU 0000:") + bus + ":00.0");
  report.ways_between.assign(16, "NVLink x18");
  report.ways_between[1 * 4 + 2] = "SYS";
  report.sheet = RateName{450, "NVIDIA H200's NVLinks, one direction"};
  return report;
}

PairWay pairs_of(const LinkReport& report, double gbps) {
  PairWay way;
  way.name = "copy engine";
  const size_t n = report.n_ranks;
  way.one_way_gbps.assign(n * n, gbps);
  way.two_way_gbps.assign(n * n, 2 * gbps);
  way.latency_us.assign(n * n, 1.5);
  for (size_t i = 0; i < n; ++i)
    way.one_way_gbps[i * n + i] = way.two_way_gbps[i * n + i] = way.latency_us[i * n + i] = kNone;
  return way;
}

// The median of 400 is 400; 0.7 of it 280.
TEST(LinkPairs, BelowSevenTenthsOfTheMedianAreSlow) {
  const LinkReport report = four_gpus();
  PairWay way = pairs_of(report, 400);
  way.one_way_gbps[1 * 4 + 2] = 279;
  way.one_way_gbps[2 * 4 + 1] = 281;
  const std::vector<SlowPair> slow = slow_pairs(report, way);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].from, 1);
  EXPECT_EQ(slow[0].to, 2);
  EXPECT_DOUBLE_EQ(slow[0].median_gbps, 400);
  EXPECT_NE(way_text(report, way)
                .find("SLOW: copy engine from rank 1 (nodeA, GPU 0000:2a:00.0) to 2 (nodeA, GPU "
                      "0000:3a:00.0): 279.00 GB/s, 70 % of the median 400.00; the way is SYS"),
            std::string::npos);
}

// What lies between hosts is compared with its like.
TEST(LinkPairs, HostsAreComparedWithHosts) {
  LinkReport report = four_gpus();
  report.host_of = {0, 0, 1, 1};
  PairWay way = pairs_of(report, 40);
  for (const size_t i : {1, 4, 11, 14}) way.one_way_gbps[i] = 400;
  EXPECT_TRUE(slow_pairs(report, way).empty());
  way.one_way_gbps[0 * 4 + 2] = 20;
  ASSERT_EQ(slow_pairs(report, way).size(), 1u);
  EXPECT_DOUBLE_EQ(slow_pairs(report, way)[0].median_gbps, 40);
  way.one_way_gbps[0 * 4 + 2] = kNone;
  EXPECT_TRUE(slow_pairs(report, way).empty()) << "a way that can't be is not slow";
}

std::string text_of(const LinkReport& report) {
  std::string text = head_text(report);
  for (const SweepRow& row : report.rows) text += row_text(report, row);
  for (const SumRow& row : report.sums) text += row_text(report, row);
  for (const PairWay& way : report.pairs) text += way_text(report, way);
  return text + tail_text(report);
}

LinkReport sweep_report() {
  LinkReport report = four_gpus();
  report.test = LinkTest::all_gather;
  report.peak = RateName{390, "copy engine, rank 0 to 1"};
  for (const auto& [bytes, us, wire] :
       {std::tuple(size_t{16}, 6.25, -1.0), std::tuple(size_t{4} << 20, 24.5, 150.25),
        std::tuple(size_t{1} << 30, 2345.6, 361.5)}) {
    SweepRow row;
    row.bytes = bytes;
    row.count = bytes / 16;
    row.out_of_place = link_times(report.test, 4, bytes, us, 0);
    row.in_place = link_times(report.test, 4, bytes, us * 1.25, 0);
    if (wire > 0) row.wire_gbps = wire;
    report.rows.push_back(row);
  }
  return report;
}

LinkReport pairs_report() {
  LinkReport report = four_gpus();
  report.n_hosts = 1;
  PairWay way = pairs_of(report, 391.5);
  way.one_way_gbps[1 * 4 + 2] = 26.25;
  way.one_way_gbps[3 * 4 + 0] = kNone;
  report.pairs = {way};
  report.peak = fastest_pair(report, report.pairs);
  return report;
}

LinkReport sums_report() {
  LinkReport report = four_gpus();
  report.test = LinkTest::all_reduce;
  report.dtype = DType::bf16;
  report.graph = true;
  report.sum_ways = {"peer one-shot", "peer two-shot", "NCCL"};
  report.sums = {{14336, {4.75, 6.5, 9.25}, 0}, {size_t{8} << 20, {kNone, 80.5, 61.25}, 0}};
  return report;
}

void expect_recorded(const std::string& name, const std::string& text) {
  const std::string path = kData + name + ".txt";
  ASSERT_TRUE(is_file(path)) << "no example at " << path;
  EXPECT_EQ(text, read_text(path, 1 << 20));
}

TEST(LinkText, IsAsRecorded) {
  expect_recorded("all-gather", text_of(sweep_report()));
  expect_recorded("p2p", text_of(pairs_report()));
  expect_recorded("sums", text_of(sums_report()));
}

// Shares are of two rates, each named.
TEST(LinkText, NamesWhatSharesAreOf) {
  const std::string text = tail_text(sweep_report());
  EXPECT_NE(text.find("% of the data sheet's, 450.00 GB/s (NVIDIA H200's NVLinks, one direction)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("% of the measured peak, 390.00 GB/s (copy engine, rank 0 to 1)"),
            std::string::npos)
      << text;
}

TEST(LinkText, WrongValuesStandOut) {
  LinkReport report = sweep_report();
  report.rows[1].in_place->n_wrong = 3;
  EXPECT_EQ(report.n_wrong(), 3u);
  EXPECT_NE(tail_text(report).find("Out of bounds values : 3 FAILED"), std::string::npos);
}

TEST(LinkJson, HoldsAllOfIt) {
  const json rows = json::parse(links_json(sweep_report()));
  EXPECT_EQ(rows["pattern"], "all-gather");
  EXPECT_EQ(rows["rows"].size(), 3u);
  EXPECT_DOUBLE_EQ(rows["bus_factor"], 0.75);
  EXPECT_TRUE(rows["rows"][0]["wire_gbps"].is_null());
  EXPECT_DOUBLE_EQ(rows["rows"][2]["wire_gbps"], 361.5);
  EXPECT_DOUBLE_EQ(rows["data_sheet"]["gbps"], 450);
  const json pairs = json::parse(links_json(pairs_report()));
  EXPECT_EQ(pairs["ways"][0]["slow"][0]["path"], "SYS");
  EXPECT_TRUE(pairs["ways"][0]["one_way_gbps"][3][0].is_null());
  EXPECT_DOUBLE_EQ(pairs["ways"][0]["one_way_gbps"][0][1], 391.5);
  const json sums = json::parse(links_json(sums_report()));
  EXPECT_DOUBLE_EQ(sums["sums"][0]["us"]["peer one-shot"], 4.75);
  EXPECT_TRUE(sums["sums"][1]["us"]["peer one-shot"].is_null());
}

// Where NVLink counts, what went over the wire has a matrix of its own.
TEST(LinkPairs, TheWireStandsBesideThePayload) {
  LinkReport report = four_gpus();
  PairWay way = pairs_of(report, 400);
  EXPECT_EQ(way_text(report, way).find("on the wire"), std::string::npos);
  report.pairs = {way};
  EXPECT_TRUE(json::parse(links_json(report))["ways"][0]["wire_gbps"].is_null());
  report.pairs[0].wire_gbps.assign(16, 431.25);
  EXPECT_NE(way_text(report, report.pairs[0]).find("on the wire"), std::string::npos);
  EXPECT_NE(way_text(report, report.pairs[0]).find("431.2"), std::string::npos);
  EXPECT_DOUBLE_EQ(json::parse(links_json(report))["ways"][0]["wire_gbps"][0][1], 431.25);
  EXPECT_NE(links_html(report).find("on the wire"), std::string::npos);
}

TEST(LinkHtml, IsOnePageWithChartOrMatrix) {
  const std::string sweep = links_html(sweep_report());
  EXPECT_NE(sweep.find("<svg"), std::string::npos);
  const std::string pairs = links_html(pairs_report());
  EXPECT_NE(pairs.find("class=\"slow\""), std::string::npos);
  EXPECT_NE(links_html(sums_report()).find("peer one-shot"), std::string::npos);
  for (const std::string& page : {sweep, pairs}) {
    EXPECT_EQ(page.find("http"), std::string::npos) << "it asks the network for something";
    EXPECT_EQ(page.find("nan"), std::string::npos);
    EXPECT_NE(page.find("</html>"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::launch
