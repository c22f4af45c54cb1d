// The report for programs. NaN, where a way can't go, is null.
#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/links_report.h"

namespace weft::launch {
namespace {

using json = nlohmann::ordered_json;

json value_of(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json matrix_of(const std::vector<double>& values, size_t n) {
  json rows = json::array();
  for (size_t from = 0; from < n; ++from) {
    json row = json::array();
    for (size_t to = 0; to < n; ++to)
      row.push_back(from == to ? json(nullptr) : value_of(values[from * n + to]));
    rows.push_back(std::move(row));
  }
  return rows;
}

json times_of(const std::optional<LinkTimes>& times) {
  if (!times) return nullptr;
  return {{"us", times->us},
          {"algbw_gbps", times->algorithm_gbps},
          {"busbw_gbps", times->bus_gbps},
          {"wrong", times->n_wrong}};
}

json rate_of(const std::optional<RateName>& rate) {
  if (!rate) return nullptr;
  return {{"gbps", rate->gbps}, {"is", rate->words}};
}

json row_of(const SweepRow& row) {
  return {{"bytes", row.bytes},
          {"count", row.count},
          {"out_of_place", times_of(row.out_of_place)},
          {"in_place", times_of(row.in_place)},
          {"wire_gbps", row.wire_gbps ? json(*row.wire_gbps) : json(nullptr)}};
}

json way_of(const LinkReport& report, const PairWay& way) {
  const size_t n = report.n_ranks;
  json slow = json::array();
  for (const SlowPair& pair : slow_pairs(report, way))
    slow.push_back(
        {{"from", pair.from},
         {"to", pair.to},
         {"gbps", pair.gbps},
         {"median_gbps", pair.median_gbps},
         {"path",
          report.ways_between[static_cast<size_t>(pair.from) * n + static_cast<size_t>(pair.to)]}});
  return {{"way", way.name},
          {"one_way_gbps", matrix_of(way.one_way_gbps, n)},
          {"two_way_gbps", matrix_of(way.two_way_gbps, n)},
          {"latency_us", matrix_of(way.latency_us, n)},
          {"wire_gbps", way.wire_gbps.empty() ? json(nullptr) : matrix_of(way.wire_gbps, n)},
          {"wrong", way.n_wrong},
          {"slow", std::move(slow)}};
}

json sum_of(const LinkReport& report, const SumRow& row) {
  json us = json::object();
  for (size_t i = 0; i < row.us.size(); ++i) us[report.sum_ways[i]] = value_of(row.us[i]);
  return {{"bytes", row.bytes}, {"us", std::move(us)}, {"wrong", row.n_wrong}};
}

json paths_of(const LinkReport& report) {
  json rows = json::array();
  for (size_t from = 0; from < report.n_ranks; ++from) {
    json row = json::array();
    for (size_t to = 0; to < report.n_ranks; ++to)
      row.push_back(from == to ? json(nullptr)
                               : json(report.ways_between[from * report.n_ranks + to]));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string links_json(const LinkReport& report) {
  json out;
  out["pattern"] = name_of(report.test);
  out["graph"] = report.graph;
  out["ranks"] = report.n_ranks;
  out["hosts"] = report.n_hosts;
  out["bound"] = report.bound;
  out["device"] = report.device;
  out["transport"] = report.transport;
  out["dtype"] = dtype_name(report.dtype);
  out["places"] = report.places;
  out["paths"] = paths_of(report);
  out["data_sheet"] = rate_of(report.sheet);
  out["measured_peak"] = rate_of(report.peak);
  if (!report.no_copies.empty()) out["no_copies"] = report.no_copies;
  if (!report.no_wire.empty()) out["no_wire"] = report.no_wire;
  if (report.test == LinkTest::p2p) {
    out["rate_bytes"] = report.rate_bytes;
    out["latency_bytes"] = report.latency_bytes;
    out["ways"] = json::array();
    for (const PairWay& way : report.pairs) out["ways"].push_back(way_of(report, way));
  } else if (report.graph) {
    out["sums"] = json::array();
    for (const SumRow& row : report.sums) out["sums"].push_back(sum_of(report, row));
  } else {
    out["bus_factor"] = bus_factor(report.test, report.n_ranks);
    out["rows"] = json::array();
    for (const SweepRow& row : report.rows) out["rows"].push_back(row_of(row));
  }
  out["wrong"] = report.n_wrong();
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace weft::launch
