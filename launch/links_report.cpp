// Definitions, and the text for people.
#include "launch/links_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::launch {
namespace {

constexpr double kNone = -1;  // no rate

std::string type_name(DType dtype) {
  return dtype == DType::f32 ? "float" : dtype == DType::f16 ? "half" : "bfloat16";
}

// Three significant digits or more, within seven columns, as nccl-tests rounds them.
std::string number(double value) {
  if (!std::isfinite(value)) return "-";
  const int digits = value < 100 ? 2 : value < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, digits);
}

std::string times_text(const std::optional<LinkTimes>& times) {
  if (!times) return fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {:>7}  {:>6.2f}  {:>6.2f}  {:>5}", number(times->us), times->algorithm_gbps,
                     times->bus_gbps, times->n_wrong);
}

std::string matrix_text(const LinkReport& report, const std::vector<double>& values) {
  std::string text = "#   to";
  for (size_t r = 0; r < report.n_ranks; ++r) text += fmt::format(" {:>8}", r);
  text += '\n';
  for (size_t from = 0; from < report.n_ranks; ++from) {
    text += fmt::format("{:>6}", from);
    for (size_t to = 0; to < report.n_ranks; ++to)
      text += fmt::format(" {:>8}", from == to ? "-" : number(values[from * report.n_ranks + to]));
    text += '\n';
  }
  return text;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Rates of the pairs of one kind, and where they are.
struct Group {
  std::vector<double> rates;
  std::vector<size_t> at;
};
Group group_of(const LinkReport& report, const PairWay& way, bool one_host) {
  Group group;
  const size_t n = report.n_ranks;
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to) {
      const double rate = way.one_way_gbps[from * n + to];
      const bool same = report.host_of[from] == report.host_of[to];
      if (from == to || same != one_host || !std::isfinite(rate)) continue;
      group.rates.push_back(rate);
      group.at.push_back(from * n + to);
    }
  return group;
}

// The rate that shares are taken of, and its name.
struct Best {
  double gbps = kNone;
  std::string words;
};

Best best_row(const LinkReport& report) {
  Best best;
  for (const SweepRow& row : report.rows)
    for (const auto& [times, place] :
         {std::pair(&row.out_of_place, "out-of-place"), std::pair(&row.in_place, "in-place")})
      if (*times && (*times)->bus_gbps > best.gbps)
        best = {(*times)->bus_gbps,
                fmt::format("largest bus bandwidth, {} {}", size_text(row.bytes), place)};
  return best;
}

std::string shares_text(const LinkReport& report, const Best& best) {
  std::string text = fmt::format("# {}: {:.2f} GB/s", best.words, best.gbps);
  const auto add = [&](const std::optional<RateName>& of, std::string_view name) {
    if (!of || of->gbps <= 0) return;
    text += fmt::format("; {:.1f} % of {}, {:.2f} GB/s ({})", 100 * best.gbps / of->gbps, name,
                        of->gbps, of->words);
  };
  add(report.sheet, "the data sheet's");
  add(report.peak, "the measured peak");
  return text + '\n';
}

// Of the longest message whose bytes NVLink's own counters have followed.
std::string wire_text(const LinkReport& report) {
  for (auto row = report.rows.rbegin(); row != report.rows.rend(); ++row) {
    if (!row->wire_gbps) continue;
    std::string text = fmt::format("# NVLink's counters, {}: {:.2f} GB/s sent by a GPU",
                                   size_text(row->bytes), *row->wire_gbps);
    if (report.sheet)
      text += fmt::format("; {:.1f} % of the data sheet's, {:.2f} GB/s",
                          100 * *row->wire_gbps / report.sheet->gbps, report.sheet->gbps);
    return text + '\n';
  }
  return "";
}

// Of the slowest pair: each direction beside the peak of one.
std::string two_way_text(const LinkReport& report, const PairWay& way) {
  double slowest = kNone;
  for (const double gbps : way.two_way_gbps)
    if (std::isfinite(gbps) && (slowest < 0 || gbps < slowest)) slowest = gbps;
  if (slowest < 0 || !report.peak || report.peak->gbps <= 0) return "";
  return fmt::format(
      "# two ways at once, {}, slowest pair: {:.2f} GB/s together; {:.1f} % of twice the measured "
      "peak\n",
      way.name, slowest, 50 * slowest / report.peak->gbps);
}

std::string slow_text(const LinkReport& report, const PairWay& way) {
  std::string text;
  for (const SlowPair& slow : slow_pairs(report, way))
    text += fmt::format(
        "# SLOW: {} from rank {} ({}) to {} ({}): {:.2f} GB/s, {:.0f} % of the median {:.2f}; the "
        "way is {}\n",
        way.name, slow.from, report.places[static_cast<size_t>(slow.from)], slow.to,
        report.places[static_cast<size_t>(slow.to)], slow.gbps, 100 * slow.gbps / slow.median_gbps,
        slow.median_gbps,
        report.ways_between[static_cast<size_t>(slow.from) * report.n_ranks +
                            static_cast<size_t>(slow.to)]);
  return text;
}

constexpr std::string_view kColumns =
    "#\n"
    "#                                                              out-of-place                  "
    "     in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time"
    "   algbw   busbw #wrong    wire\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)"
    "  (GB/s)  (GB/s)         (GB/s)\n";

}  // namespace

double algorithm_gbps(size_t bytes, double us) {
  return us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0;
}

double bus_factor(LinkTest test, size_t n_ranks) {
  const auto n = static_cast<double>(n_ranks);
  switch (test) {
    case LinkTest::all_reduce:
      return 2 * (n - 1) / n;
    case LinkTest::all_gather:
    case LinkTest::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

LinkTimes link_times(LinkTest test, size_t n_ranks, size_t bytes, double us, size_t n_wrong) {
  const double rate = algorithm_gbps(bytes, us);
  return {us, rate, rate * bus_factor(test, n_ranks), n_wrong};
}

size_t LinkReport::n_wrong() const {
  size_t n = 0;
  for (const SweepRow& row : rows)
    for (const auto* times : {&row.out_of_place, &row.in_place})
      if (*times) n += (*times)->n_wrong;
  for (const PairWay& way : pairs) n += way.n_wrong;
  for (const SumRow& row : sums) n += row.n_wrong;
  return n;
}

std::vector<SlowPair> slow_pairs(const LinkReport& report, const PairWay& way) {
  std::vector<SlowPair> slow;
  for (const bool one_host : {true, false}) {
    const Group group = group_of(report, way, one_host);
    if (group.rates.empty()) continue;
    const double middle = median(group.rates);
    for (size_t i = 0; i < group.at.size(); ++i)
      if (group.rates[i] < kSlowPair * middle)
        slow.push_back({static_cast<int>(group.at[i] / report.n_ranks),
                        static_cast<int>(group.at[i] % report.n_ranks), group.rates[i], middle});
  }
  return slow;
}

std::optional<RateName> fastest_pair(const LinkReport& report, const std::vector<PairWay>& ways) {
  std::optional<RateName> best;
  for (const PairWay& way : ways)
    for (size_t i = 0; i < way.one_way_gbps.size(); ++i)
      if (std::isfinite(way.one_way_gbps[i]) && (!best || way.one_way_gbps[i] > best->gbps))
        best = {way.one_way_gbps[i],
                fmt::format("{}, rank {} to {}", way.name, i / report.n_ranks, i % report.n_ranks)};
  return best;
}

std::string head_text(const LinkReport& report) {
  std::string text =
      fmt::format("# weft bench links: {}{}, {} ranks on {} host{}, {}, {}{}\n",
                  name_of(report.test), report.graph ? " in a graph" : "", report.n_ranks,
                  report.n_hosts, report.n_hosts == 1 ? "" : "s", report.device, report.transport,
                  report.bound ? "" : ", ranks not bound");
  for (size_t r = 0; r < report.places.size(); ++r)
    text += fmt::format("#  rank {:>3}  {}\n", r, report.places[r]);
  if (!report.no_copies.empty())
    text += fmt::format("# no copies between GPUs: {}\n", report.no_copies);
  if (!report.no_wire.empty()) text += fmt::format("# no NVLink counters: {}\n", report.no_wire);
  if (report.test == LinkTest::p2p) return text;
  if (!report.graph) return text + std::string(kColumns);
  text += fmt::format("#\n#{:>13} {:>12}", "size", "count");
  for (const std::string& way : report.sum_ways) text += fmt::format(" {:>20}", way);
  text += fmt::format(" {:>6}  fastest\n#{:>13} {:>12}", "#wrong", "(B)", "(elements)");
  for (size_t i = 0; i < report.sum_ways.size(); ++i) text += fmt::format(" {:>20}", "(us)");
  return text + '\n';
}

std::string row_text(const LinkReport& report, const SweepRow& row) {
  const bool sums = report.test == LinkTest::all_reduce;
  return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}  {:>6}\n", row.bytes, row.count,
                     type_name(report.dtype), sums ? "sum" : "none", -1,
                     times_text(row.out_of_place), times_text(row.in_place),
                     row.wire_gbps ? number(*row.wire_gbps) : "-");
}

std::string row_text(const LinkReport& report, const SumRow& row) {
  std::string text =
      fmt::format(" {:>13} {:>12}", row.bytes, row.bytes / dtype_bytes(report.dtype));
  size_t best = 0;
  for (size_t i = 0; i < row.us.size(); ++i) {
    text += fmt::format(" {:>20}", number(row.us[i]));
    if (!std::isfinite(row.us[best]) || row.us[i] < row.us[best]) best = i;
  }
  return text + fmt::format(" {:>6}  {}\n", row.n_wrong, report.sum_ways[best]);
}

std::string way_text(const LinkReport& report, const PairWay& way) {
  return fmt::format("#\n# {}: one way, GB/s of {} bytes; row sends, column receives\n", way.name,
                     report.rate_bytes) +
         matrix_text(report, way.one_way_gbps) +
         fmt::format("# {}: two ways at once, GB/s of both together\n", way.name) +
         matrix_text(report, way.two_way_gbps) +
         fmt::format("# {}: latency, us of {} bytes\n", way.name, report.latency_bytes) +
         matrix_text(report, way.latency_us) +
         (way.wire_gbps.empty()
              ? ""
              : fmt::format("# {}: one way, GB/s on the wire by NVLink's counters\n", way.name) +
                    matrix_text(report, way.wire_gbps)) +
         fmt::format("# {}: {} wrong values\n", way.name, way.n_wrong) + slow_text(report, way);
}

std::string tail_text(const LinkReport& report) {
  std::string text = "#\n";
  for (const PairWay& way : report.pairs)
    if (const auto best = fastest_pair(report, {way}))
      text += shares_text(report, {best->gbps, "fastest pair, " + best->words}) +
              two_way_text(report, way);
  if (const Best best = best_row(report); best.gbps >= 0) {
    text += shares_text(report, best) + wire_text(report);
    double sum = 0;
    size_t n = 0;
    for (const SweepRow& row : report.rows)
      for (const auto* times : {&row.out_of_place, &row.in_place})
        if (*times) {
          sum += (*times)->bus_gbps;
          ++n;
        }
    text += fmt::format("# Avg bus bandwidth    : {:.4f}\n", sum / static_cast<double>(n));
  }
  const size_t n_wrong = report.n_wrong();
  return text +
         fmt::format("# Out of bounds values : {} {}\n", n_wrong, n_wrong == 0 ? "OK" : "FAILED");
}

}  // namespace weft::launch
