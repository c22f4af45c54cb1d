// The report as one page without network: the matrices as tables whose colour follows the rate, the
// sweep as a chart of bus bandwidth over size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/links_report.h"
#include "launch/svg.h"

namespace weft::launch {
namespace {

constexpr std::string_view kStyle = R"css(
body { font: 14px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: #1d2530; background: #fff; max-width: 960px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 26px 0 6px; }
p { margin: 4px 0; } .quiet { color: #5b6675; } .warn { color: #8a3b00; }
table { border-collapse: collapse; font-size: 12.5px; margin: 6px 0; }
th, td { padding: 3px 9px; border: 1px solid #e7eaef; text-align: right;
  font-variant-numeric: tabular-nums; } th { color: #5b6675; font-weight: 600; }
td.slow { outline: 2px solid #c2410c; outline-offset: -2px; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1d2530; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; } svg .start { text-anchor: start; }
.axis { stroke: #5b6675; } .grid { stroke: #e7eaef; } .busbw { stroke: #1f4e8c; fill: #1f4e8c;
  stroke-width: 2; } .sheet { stroke: #8a5aa8; stroke-dasharray: 6 4; }
.peak { stroke: #4a9c6d; stroke-dasharray: 2 3; }
)css";

std::string paragraph(std::string_view text, std::string_view css_class) {
  return fmt::format("<p class=\"{}\">{}</p>\n", css_class, escape_html(text));
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.2f}", value) : "-";
}

// From white to blue by the share of the largest.
std::string shade(double value, double largest) {
  if (!std::isfinite(value) || largest <= 0) return "#fff";
  const double share = std::clamp(value / largest, 0.0, 1.0);
  const auto mixed = [share](int full) { return 255 - static_cast<int>((255 - full) * share); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(0xa8), mixed(0xc8), mixed(0xf0));
}

std::string matrix(const LinkReport& report, const std::vector<double>& values,
                   const std::vector<SlowPair>& slow) {
  const size_t n = report.n_ranks;
  double largest = 0;
  for (const double value : values)
    if (std::isfinite(value)) largest = std::max(largest, value);
  std::string html = "<table><tr><th>from \\ to</th>";
  for (size_t to = 0; to < n; ++to) html += fmt::format("<th>{}</th>", to);
  html += "</tr>\n";
  for (size_t from = 0; from < n; ++from) {
    html += fmt::format("<tr><th>{}</th>", from);
    for (size_t to = 0; to < n; ++to) {
      if (from == to) {
        html += "<td></td>";
        continue;
      }
      const double value = values[from * n + to];
      const bool is_slow = std::any_of(slow.begin(), slow.end(), [&](const SlowPair& pair) {
        return static_cast<size_t>(pair.from) == from && static_cast<size_t>(pair.to) == to;
      });
      html += fmt::format("<td{} style=\"background:{}\" title=\"{}\">{}</td>",
                          is_slow ? " class=\"slow\"" : "", shade(value, largest),
                          escape_html(report.ways_between[from * n + to]), number(value));
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string way_section(const LinkReport& report, const PairWay& way) {
  const std::vector<SlowPair> slow = slow_pairs(report, way);
  std::string html = fmt::format("<h2>{}</h2>\n", escape_html(way.name));
  html += paragraph(fmt::format("One way, GB/s of {}. Ringed: below {:.1f} of the median.",
                                size_text(report.rate_bytes), kSlowPair),
                    "quiet");
  html += matrix(report, way.one_way_gbps, slow);
  html += paragraph("Two ways at once, GB/s of both together.", "quiet");
  html += matrix(report, way.two_way_gbps, {});
  html += paragraph(fmt::format("Latency, us of {}.", size_text(report.latency_bytes)), "quiet");
  html += matrix(report, way.latency_us, {});
  if (way.wire_gbps.empty()) return html;
  html += paragraph("One way, GB/s on the wire by NVLink's counters.", "quiet");
  return html + matrix(report, way.wire_gbps, {});
}

constexpr double kLeft = 60, kTop = 12, kWidth = 820, kHeight = 280;

std::string sweep_chart(const LinkReport& report) {
  double most = report.sheet ? report.sheet->gbps : 0;
  if (report.peak) most = std::max(most, report.peak->gbps);
  const auto rate = [](const SweepRow& row) {
    return std::max(row.out_of_place ? row.out_of_place->bus_gbps : 0.0,
                    row.in_place ? row.in_place->bus_gbps : 0.0);
  };
  for (const SweepRow& row : report.rows) most = std::max(most, rate(row));
  const double low = std::log2(static_cast<double>(report.rows.front().bytes));
  const double high = std::max(low + 1, std::log2(static_cast<double>(report.rows.back().bytes)));
  const auto x = [&](double bytes) {
    return kLeft + (std::log2(bytes) - low) / (high - low) * kWidth;
  };
  const auto y = [&](double gbps) { return kTop + (1 - gbps / most) * kHeight; };
  Svg svg(kLeft + kWidth + 30, kTop + kHeight + 40, "bus bandwidth over size");
  const double step = tick_step(most, 6);
  for (double mark = 0; mark <= most; mark += step) {
    svg.line(kLeft, y(mark), kLeft + kWidth, y(mark), "grid");
    svg.text(kLeft - 6, y(mark) + 4, "end", fmt::format("{:g}", mark));
  }
  for (size_t i = 0; i < report.rows.size(); i += std::max<size_t>(1, report.rows.size() / 10)) {
    const size_t bytes = report.rows[i].bytes;
    svg.text(x(static_cast<double>(bytes)), kTop + kHeight + 18, "middle", size_text(bytes));
  }
  for (const auto& [of, css_class] :
       {std::pair(&report.sheet, "sheet"), std::pair(&report.peak, "peak")})
    if (*of) svg.line(kLeft, y((*of)->gbps), kLeft + kWidth, y((*of)->gbps), css_class);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const SweepRow& row = report.rows[i];
    const double here_x = x(static_cast<double>(row.bytes)), here_y = y(rate(row));
    svg.circle(here_x, here_y, 3, "busbw",
               fmt::format("{}: {:.2f} GB/s", size_text(row.bytes), rate(row)));
    if (i == 0) continue;
    const SweepRow& before = report.rows[i - 1];
    svg.line(x(static_cast<double>(before.bytes)), y(rate(before)), here_x, here_y, "busbw");
  }
  svg.line(kLeft, kTop + kHeight, kLeft + kWidth, kTop + kHeight, "axis");
  return "<h2>Bus bandwidth, GB/s</h2>\n" + svg.finish();
}

std::string sums_table(const LinkReport& report) {
  std::string html = "<h2>Sums in a graph, us</h2>\n<table><tr><th>size</th>";
  for (const std::string& way : report.sum_ways)
    html += fmt::format("<th>{}</th>", escape_html(way));
  html += "</tr>\n";
  for (const SumRow& row : report.sums) {
    html += fmt::format("<tr><th>{}</th>", size_text(row.bytes));
    for (const double us : row.us) html += fmt::format("<td>{}</td>", number(us));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

}  // namespace

std::string links_html(const LinkReport& report) {
  const std::string title =
      fmt::format("{} between {} ranks", name_of(report.test), report.n_ranks);
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>weft bench links: {0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escape_html(title), kStyle);
  html += paragraph(
      fmt::format("{}, {}, {} host{}{}", report.device, report.transport, report.n_hosts,
                  report.n_hosts == 1 ? "" : "s", report.bound ? "" : ", ranks not bound"),
      "quiet");
  for (size_t r = 0; r < report.places.size(); ++r)
    html += paragraph(fmt::format("rank {}: {}", r, report.places[r]), "quiet");
  for (const auto& [of, name] : {std::pair(&report.sheet, "Data sheet (dashed)"),
                                 std::pair(&report.peak, "Measured peak (dotted)")})
    if (*of)
      html += paragraph(fmt::format("{}: {:.2f} GB/s, {}", name, (*of)->gbps, (*of)->words), "");
  if (!report.no_copies.empty())
    html += paragraph("No copies between GPUs: " + report.no_copies, "warn");
  if (!report.rows.empty()) html += sweep_chart(report);
  if (!report.sums.empty()) html += sums_table(report);
  for (const PairWay& way : report.pairs) html += way_section(report, way);
  html += "<h2>Text</h2>\n<pre>" + escape_html(head_text(report));
  for (const SweepRow& row : report.rows) html += escape_html(row_text(report, row));
  for (const SumRow& row : report.sums) html += escape_html(row_text(report, row));
  html += escape_html(tail_text(report)) + "</pre>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace weft::launch
