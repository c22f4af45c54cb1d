#include "launch/plan_html.h"

#include <fmt/format.h>

#include "launch/plan_breakdown.h"
#include "launch/plan_charts.h"
#include "launch/plan_ranking.h"
#include "launch/svg.h"
#include "planner/memory_model.h"
#include "planner/search_report.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::Candidate;

// Colours differ in lightness too: they stay apart on a grey printer.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light; }
body { font: 14px/1.45 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: #1d2530; background: #fff; max-width: 960px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 30px 0 6px;
  border-bottom: 1px solid #d6dbe2; padding-bottom: 3px; }
p { margin: 4px 0; } .quiet { color: #5b6675; } .warn { color: #8a3b00; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; margin: 14px 0; }
.card { border: 1px solid #d6dbe2; border-radius: 6px; padding: 8px 14px; }
.card b { display: block; font-size: 19px; } .card span { color: #5b6675; font-size: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 12.5px; }
th, td { text-align: left; padding: 3px 8px 3px 0; border-bottom: 1px solid #e7eaef;
  vertical-align: top; } th { color: #5b6675; font-weight: 600; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.chosen td { background: #eef4ff; font-weight: 600; }
svg { display: block; max-width: 100%; height: auto; margin: 6px 0; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1d2530; }
svg .small { font-size: 11px; fill: #5b6675; } svg .strong { font-weight: 600; }
svg .start { text-anchor: start; } svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; } svg .stage { font-size: 11px; font-weight: 600; }
svg text.step { fill: #fff; font-size: 10px; }
.node { fill: #fafbfc; stroke: #aab3c0; } .free { fill: #fff; stroke: #aab3c0; }
.idle { fill: #f1f3f6; stroke: #c9d0d9; stroke-dasharray: 3 2; }
.axis { stroke: #5b6675; } .grid { stroke: #e7eaef; }
.step-prefill { fill: #1f4e8c; } .step-decode { fill: #4a9c6d; } .step-both { fill: #8a5aa8; }
.step-prefill, .step-decode, .step-both { stroke: #fff; stroke-width: .5; }
.point { fill: #aab3c0; } .front { fill: #4a9c6d; stroke: #fff; }
.ringed { fill: none; stroke: #c2410c; stroke-width: 2.5; }
.p-weights, .p-products { fill: #1f4e8c; } .p-KV, .p-attention { fill: #6aa5e0; }
.p-activations, .p-experts { fill: #4a9c6d; } .p-graphs, .p-head { fill: #a5cf8c; }
.p-buffers, .p-all-reduce { fill: #e0a63a; } .p-reserve, .p-host { fill: #b9bfc9; }
.p-other { fill: #8a5aa8; } .p-edges { fill: #c2410c; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 12px; color: #5b6675; }
.legend svg { display: inline-block; vertical-align: -1px; margin: 0 5px 0 0; }
@media print { body { margin: 0; max-width: none; font-size: 11px; }
  h2 { margin-top: 16px; } section, tr, svg { break-inside: avoid; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; } }
@page { margin: 14mm; }
)css";

std::string cell(std::string_view text, bool number) {
  return fmt::format("<td{}>{}</td>", number ? " class=\"n\"" : "", escape_html(text));
}

// Text columns are those named in `texts`, by index.
std::string table(const std::vector<std::pair<std::string, bool>>& columns,
                  const std::vector<std::vector<std::string>>& rows, bool first_chosen) {
  std::string html = "<table><thead><tr>";
  for (const auto& [title, number] : columns)
    html += fmt::format("<th{}>{}</th>", number ? " class=\"n\"" : "", escape_html(title));
  html += "</tr></thead><tbody>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    html += r == 0 && first_chosen ? "<tr class=\"chosen\">" : "<tr>";
    for (size_t c = 0; c < rows[r].size(); ++c) html += cell(rows[r][c], columns[c].second);
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string card(std::string_view value, std::string_view what) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", escape_html(value),
                     escape_html(what));
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string html = "<p class=\"legend\">";
  for (const auto& [css_class, what] : entries)
    html += fmt::format(
        "<span><svg width=\"11\" height=\"11\"><rect class=\"{}\" width=\"11\" "
        "height=\"11\"/></svg>{}</span>",
        css_class, escape_html(what));
  return html + "</p>\n";
}

std::string section(std::string_view title, const std::string& body) {
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", escape_html(title), body);
}

std::string paragraph(std::string_view text, std::string_view css_class) {
  return fmt::format("<p class=\"{}\">{}</p>\n", css_class, escape_html(text));
}

std::string head_of(const PlanCase& of, const PlanResult& result) {
  const Candidate& best = result.search.best;
  std::string html = fmt::format("<h1>{} on {}</h1>\n", escape_html(of.request.model.name),
                                 escape_html(of.request.cluster.name));
  html += paragraph(objective_text(of.request.workload) + "; engine " + of.engine, "quiet");
  html += "<div class=\"cards\">\n";
  html += card(layout_text(best.layout), "layout: layers x TP of each stage");
  html += card(fmt::format("{}", best.gpus), "GPUs");
  html += card(fmt::format("{:.1f} ms", best.served.ttft_ms), "time to first token");
  html += card(fmt::format("{:.2f} ms", best.served.tpot_ms), "time per output token");
  html += card(fmt::format("{:.0f}", best.tokens_per_s), "output tokens/s");
  html += "</div>\n" + paragraph(result.search.verdict, "");
  html += paragraph(schedule_text(best.layout.schedule), "quiet");
  if (result.extrapolated)
    html += paragraph("Extrapolated: some of these times lie outside the measured curves.", "warn");
  for (const std::string& mark : result.not_executed)
    html += paragraph("Not executed yet: " + mark, "warn");
  return html;
}

std::string nodes_section(const PlanCase& of, const PlanResult& result) {
  const size_t n = result.search.best.layout.n_replicas;
  std::string html;
  if (n > 1)
    html += paragraph(
        fmt::format("The first of {} replicas; the others lie on the GPUs after it.", n), "quiet");
  html += nodes_chart(of, result);
  std::vector<std::pair<std::string, std::string>> entries;
  for (const planner::BytesPart& part : memory_of(result.search.best, 0))
    entries.emplace_back("p-" + std::string(part.title), part.title);
  entries.emplace_back("free", "free");
  html += legend(entries);
  std::vector<std::vector<std::string>> rows;
  const planner::Candidate& best = result.search.best;
  for (size_t s = 0; s < best.stages.size(); ++s) {
    const planner::PlacedStage& stage = best.layout.stages[s];
    const size_t bytes = total_bytes(memory_of(best, s));
    rows.push_back(
        {fmt::format("s{}", s), fmt::format("{} to {}", stage.layers.begin, stage.layers.end - 1),
         fmt::format("{}", stage.shape.tp), fmt::format("{:.2f}", best.stages[s].prefill_ms),
         fmt::format("{:.3f}", best.stages[s].decode_ms), planner::gib_text(bytes),
         planner::gib_text(best.stages[s].rank_memory_bytes)});
  }
  return html + table({{"stage", false},
                       {"layers", false},
                       {"TP", true},
                       {"chunk ms", true},
                       {"decode step ms", true},
                       {"GiB of a rank", true},
                       {"GiB usable", true}},
                      rows, false);
}

std::string schedule_section(const PlanCase& of, const PlanResult& result) {
  return paragraph(
             "The first prompts enter, one a batch in flight, chunk by chunk; then all decode. "
             "Numbers are batches.",
             "quiet") +
         schedule_chart(of, result) +
         legend({{"step-prefill", "prefill"},
                 {"step-both", "decode with another prompt's chunk"},
                 {"step-decode", "decode"}});
}

std::string ranking_section(const PlanCase& of, const PlanResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (const Candidate& layout : result.search.ranked)
    rows.push_back({fmt::format("{}", rows.size() + 1), layout_text(layout.layout),
                    fmt::format("{}", layout.gpus), schedule_text(layout.layout.schedule),
                    fmt::format("{:.1f}", layout.served.ttft_ms),
                    fmt::format("{:.2f}", layout.served.tpot_ms),
                    fmt::format("{:.0f}", layout.tokens_per_s),
                    planner::gib_text(total_bytes(memory_of(layout, fullest_stage(layout)))),
                    bytes_text(layout.traffic_bytes),
                    standing(of, result.search.best, layout, name_of_best(result))});
  std::string html = table({{"", true},
                            {"layout", false},
                            {"GPUs", true},
                            {"schedule", false},
                            {"TTFT ms", true},
                            {"TPOT ms", true},
                            {"tokens/s", true},
                            {"GiB of a rank", true},
                            {"between nodes", true},
                            {"verdict", false}},
                           rows, true);
  if (result.given) return html;
  html += paragraph("Searched: " + to_text(result.search.grid), "quiet");
  return html + paragraph(result.search.proved
                              ? "Proved: nothing in this grid is better."
                              : fmt::format("Not proved: at most {:.2f} % better is left.",
                                            100 * result.search.gap),
                          "quiet");
}

std::string time_section(const PlanCase& of, const PlanResult& result) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const TimePart& part : breakdown(of, result.search.best).decode)
    entries.emplace_back("p-" + std::string(part.title), part.title);
  std::string html =
      paragraph(result.given ? "Through all stages of the layout."
                             : "Through all stages of the best layout and its runner-up.",
                "quiet") +
      time_chart(of, result) + legend(entries);
  if (!result.law) return html;
  const planner::ThroughputLaw& law = *result.law;
  return html +
         paragraph(fmt::format("Throughput of a replica over its own sweep: T = {:.4g} "
                               "(1/L)^{:.3f} min(B, C/L), with an error of {:.1f} % in the "
                               "mean and {:.1f} % at worst (T tokens/s, L tokens of a "
                               "sequence, B batch, C tokens of KV).",
                               law.alpha, law.beta, 100 * law.mean_error, 100 * law.worst_error),
                   "quiet");
}

std::string front_section(const PlanResult& result) {
  return paragraph(
             result.given
                 ? "The layout that was given, ringed; the number counts GPUs. None was searched."
                 : "A point a layout; the numbers count GPUs. Green: no other layout is better in "
                   "latency, tokens/s and GPUs. Ringed: the best.",
             "quiet") +
         front_chart(result);
}

std::string refused_section(const PlanResult& result) {
  std::vector<std::vector<std::string>> rows;
  for (const planner::Refusal& refusal : result.search.refused)
    rows.push_back({refusal.layout, refusal.reason, refusal.remedy});
  if (rows.empty()) return paragraph("None.", "quiet");
  return table({{"layout", false}, {"why", false}, {"what would do", false}}, rows, false);
}

}  // namespace

std::string plan_html(const PlanCase& of, const PlanResult& result) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>weft plan: {} on {}</title>\n<style>{}</style>\n</head>\n<body>\n",
      escape_html(of.request.model.name), escape_html(of.request.cluster.name), kStyle);
  html += head_of(of, result);
  html += section("Stages and memory", nodes_section(of, result));
  html += section("Schedule", schedule_section(of, result));
  html += section(result.given ? "The layout given" : "Layouts, best first",
                  ranking_section(of, result));
  html += section("Where the time goes", time_section(of, result));
  html += section("Latency, throughput, GPUs", front_section(result));
  html += section("Refused", refused_section(result));
  return html + "</body>\n</html>\n";
}

}  // namespace weft::launch
