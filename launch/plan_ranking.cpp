#include "launch/plan_ranking.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "launch/plan_breakdown.h"
#include "planner/counted.h"
#include "planner/memory_model.h"
#include "planner/search_report.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::Candidate;
using planner::Objective;
using Row = std::vector<std::string>;

// Columns as wide as their widest cell: the first to the left, numbers to the right, and the last
// to the left where it is a text.
std::string table(const std::vector<Row>& rows, size_t n_left, bool text_last) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const bool left = c < n_left || (text_last && c + 1 == row.size());
      line += left ? fmt::format("{:<{}}  ", row[c], widths[c])
                   : fmt::format("{:>{}}  ", row[c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string memory_text(const Candidate& layout) {
  const size_t s = fullest_stage(layout);
  return fmt::format("{} of {}", planner::gib_text(total_bytes(memory_of(layout, s))),
                     planner::gib_text(layout.stages[s].rank_memory_bytes));
}

Row ranking_row(const PlanCase& of, const PlanResult& result, const Candidate& layout,
                size_t rank) {
  const planner::Schedule& schedule = layout.layout.schedule;
  return {fmt::format("{}", rank),
          layout_text(layout.layout),
          fmt::format("{}", layout.gpus),
          fmt::format("{}", schedule.batch),
          fmt::format("{}", schedule.batches_in_flight),
          fmt::format("{}", schedule.prefill_chunk),
          fmt::format("{:.1f}", layout.served.ttft_ms),
          fmt::format("{:.2f}", layout.served.tpot_ms),
          fmt::format("{:.0f}", layout.tokens_per_s),
          memory_text(layout),
          bytes_text(layout.traffic_bytes),
          standing(of, result.search.best, layout, name_of_best(result)) +
              (is_extrapolated(of, layout.layout) ? " (extrapolated)" : "")};
}

std::string limit_text(const planner::Workload& work) {
  std::string text;
  const auto add = [&](std::string_view name, const auto& value, std::string_view unit) {
    if (value) text += fmt::format(", {} at most {}{}", name, *value, unit);
  };
  add("TTFT", work.slo_ttft_ms, " ms");
  add("TPOT", work.slo_tpot_ms, " ms");
  add("GPUs", work.max_gpus, "");
  return text;
}

std::string time_lines(std::string_view title, const std::vector<TimePart>& parts) {
  double total = 0;
  for (const TimePart& part : parts) total += part.ms;
  std::string text = fmt::format("  {}: {:.2f} ms", title, total);
  for (const TimePart& part : parts)
    if (part.ms > 0.0005 * total)
      text += fmt::format(", {} {:.2f} ({:.0f} %)", part.title, part.ms, 100 * part.ms / total);
  return text + "\n";
}

std::string where_text(const PlanCase& of, const Candidate& layout) {
  const Breakdown parts = breakdown(of, layout);
  std::string text =
      fmt::format("{} ({}):\n", layout_text(layout.layout), schedule_text(layout.layout.schedule));
  text += time_lines("a chunk of a prompt through all stages", parts.prefill);
  text += time_lines("a decode step through all stages", parts.decode);
  const size_t s = fullest_stage(layout);
  text += fmt::format("  the fullest rank, stage {}: {} GiB", s, memory_text(layout));
  for (const planner::BytesPart& part : memory_of(layout, s))
    text += fmt::format(", {} {}", part.title, planner::gib_text(part.bytes));
  return text + "\n";
}

std::string law_text(const planner::ThroughputLaw& law) {
  return fmt::format(
      "throughput of a replica over its sweep: T = {:.4g} (1/L)^{:.3f} min(B, C/L), error {:.1f} % "
      "in the mean, {:.1f} % at worst\n",
      law.alpha, law.beta, 100 * law.mean_error, 100 * law.worst_error);
}

// One line of the comparison: the same figure of every layout.
template <class Figure>
Row figures(std::string title, const std::vector<Candidate>& layouts, Figure figure) {
  Row row = {std::move(title)};
  for (const Candidate& layout : layouts) row.push_back(figure(layout));
  return row;
}

void add_times(const PlanCase& of, const std::vector<Candidate>& layouts, bool decode,
               std::vector<Row>& rows) {
  std::vector<std::vector<TimePart>> all;
  for (const Candidate& layout : layouts) {
    Breakdown parts = breakdown(of, layout);
    all.push_back(std::move(decode ? parts.decode : parts.prefill));
  }
  for (size_t i = 0; i < all.front().size(); ++i) {
    Row row = {fmt::format("  {} ms", all.front()[i].title)};
    double most = 0;
    for (const auto& parts : all) {
      row.push_back(fmt::format("{:.3f}", parts[i].ms));
      most = std::max(most, parts[i].ms);
    }
    if (most > 0) rows.push_back(std::move(row));
  }
}

void add_bytes(const std::vector<Candidate>& layouts, std::vector<Row>& rows) {
  std::vector<std::string_view> titles;
  for (const planner::BytesPart& part : memory_of(layouts.front(), 0)) titles.push_back(part.title);
  for (size_t i = 0; i < titles.size(); ++i)
    rows.push_back(figures(fmt::format("  {} GiB", titles[i]), layouts, [&](const Candidate& l) {
      return planner::gib_text(memory_of(l, fullest_stage(l))[i].bytes);
    }));
}

}  // namespace

std::string bytes_text(double bytes) {
  return bytes <= 0 ? "0" : human_bytes(static_cast<size_t>(std::llround(bytes)));
}

std::string schedule_text(const planner::Schedule& schedule) {
  return fmt::format("batch {}, {} in flight, chunk {}", schedule.batch, schedule.batches_in_flight,
                     schedule.prefill_chunk);
}

std::string objective_text(const planner::Workload& work) {
  std::string text =
      fmt::format("{} prompt + {} output tokens", work.prompt_tokens, work.output_tokens);
  text += work.concurrency ? fmt::format(", {} at once", *work.concurrency) : ", as many as fit";
  return text + fmt::format("; {}{}", planner::kObjectiveNames[static_cast<size_t>(work.objective)],
                            limit_text(work));
}

std::string_view name_of_best(const PlanResult& result) {
  return result.given ? "meets the limits" : "best";
}

std::string standing(const PlanCase& of, const Candidate& other, const Candidate& layout,
                     std::string_view itself) {
  const planner::Workload& work = of.request.workload;
  const auto missed = [](const std::optional<double>& limit, double is) {
    return limit && is > *limit;
  };
  if (missed(work.slo_ttft_ms, layout.served.ttft_ms))
    return fmt::format("TTFT {:.2f} times its limit", layout.served.ttft_ms / *work.slo_ttft_ms);
  if (missed(work.slo_tpot_ms, layout.served.tpot_ms))
    return fmt::format("TPOT {:.2f} times its limit", layout.served.tpot_ms / *work.slo_tpot_ms);
  if (layout.served.saturated)
    return fmt::format("saturated: {:.0f} at once, others wait", layout.served.concurrency);
  if (layout.layout == other.layout) return std::string(itself);
  const auto percent = [](double is, double than) { return 100 * (is / than - 1); };
  switch (work.objective) {
    case Objective::latency:
      return fmt::format("{:+.1f} % latency", percent(layout.latency_ms, other.latency_ms));
    case Objective::throughput:
      return fmt::format("{:+.1f} % tokens/s", percent(layout.tokens_per_s, other.tokens_per_s));
    default:
      if (layout.gpus == other.gpus)
        return fmt::format("{:+.1f} % latency", percent(layout.latency_ms, other.latency_ms));
      return layout.gpus > other.gpus
                 ? planner::counted(layout.gpus - other.gpus, "GPU") + " more"
                 : planner::counted(other.gpus - layout.gpus, "GPU") + " fewer";
  }
}

std::string ranking_table(const PlanCase& of, const PlanResult& result) {
  const planner::SearchResult& search = result.search;
  std::string text =
      fmt::format("{}: {} parameters, on {} ({}), {}\n", of.request.model.name,
                  human_count(n_parameters(of.request.model)), of.request.cluster.name,
                  planner::counted(n_gpus(of.request.cluster), "GPU"), of.engine);
  text += objective_text(of.request.workload) + "\n";
  if (!result.given) {
    text += fmt::format("searched: {}\n", to_text(search.grid));
    text += search.proved ? fmt::format("proved best of this grid in {:.0f} ms\n", search.search_ms)
                          : fmt::format(
                                "not proved: at most {:.2f} % better is left, after {:.0f} "
                                "ms\n",
                                100 * search.gap, search.search_ms);
  }
  std::vector<Row> rows = {{"", "layout", "GPUs", "batch", "in flight", "chunk", "TTFT ms",
                            "TPOT ms", "tokens/s", "GiB of a rank", "between nodes", "verdict"}};
  for (const Candidate& layout : search.ranked)
    rows.push_back(ranking_row(of, result, layout, rows.size()));
  text += table(rows, 2, true) + search.verdict + "\n";
  if (result.extrapolated)
    text += fmt::format("extrapolated: some times of {} lie outside the measured curves\n",
                        layout_text(search.best.layout));
  for (const std::string& mark : result.not_executed)
    text += fmt::format("not executed yet: {}\n", mark);
  if (search.best.layout.n_replicas > 1)
    text += fmt::format("one job runs one replica: start {} jobs of this plan\n",
                        search.best.layout.n_replicas);
  return text;
}

std::string explain_text(const PlanCase& of, const PlanResult& result) {
  const planner::SearchResult& search = result.search;
  std::string text = "\nwhere it goes\n" + where_text(of, search.best);
  if (search.ranked.size() > 1) text += where_text(of, search.ranked[1]);
  if (result.law) text += law_text(*result.law);
  if (!search.front.empty() && !result.given) {
    text += "\nnot beaten in latency, tokens/s and GPUs by another\n";
    for (const Candidate& layout : search.front)
      text += fmt::format("  {}: {}: {:.1f} ms a request, {:.0f} tokens/s\n",
                          planner::counted(layout.gpus, "GPU"), layout_text(layout.layout),
                          layout.latency_ms, layout.tokens_per_s);
  }
  if (search.refused.empty()) return text;
  text += "\nrefused\n";
  for (const planner::Refusal& refusal : search.refused)
    text += fmt::format("  {}: {}{}\n", refusal.layout, refusal.reason,
                        refusal.remedy.empty() ? "" : "; would do: " + refusal.remedy);
  return text;
}

std::string compare_table(const PlanCase& of, const std::vector<Candidate>& layouts) {
  std::vector<Row> rows;
  const auto add = [&](std::string title, auto figure) {
    rows.push_back(figures(std::move(title), layouts, figure));
  };
  const auto ms = [](double value) { return fmt::format("{:.2f}", value); };
  add("layout", [](const Candidate& l) { return layout_text(l.layout); });
  add("schedule", [](const Candidate& l) { return schedule_text(l.layout.schedule); });
  add("GPUs", [](const Candidate& l) { return fmt::format("{}", l.gpus); });
  add("TTFT ms", [&](const Candidate& l) { return ms(l.served.ttft_ms); });
  add("TPOT ms", [&](const Candidate& l) { return ms(l.served.tpot_ms); });
  add("latency ms", [&](const Candidate& l) { return ms(l.latency_ms); });
  add("tokens/s", [](const Candidate& l) { return fmt::format("{:.0f}", l.tokens_per_s); });
  add("prefill chunk, slowest stage ms",
      [&](const Candidate& l) { return ms(l.times.prefill_max_ms); });
  add("prefill chunk, all stages ms",
      [&](const Candidate& l) { return ms(l.times.prefill_sum_ms); });
  add_times(of, layouts, false, rows);
  add("decode step, slowest stage ms",
      [&](const Candidate& l) { return ms(l.times.decode_max_ms); });
  add("decode step, all stages ms", [&](const Candidate& l) { return ms(l.times.decode_sum_ms); });
  add_times(of, layouts, true, rows);
  add("fullest rank GiB", [](const Candidate& l) { return memory_text(l); });
  add_bytes(layouts, rows);
  add("between nodes a request", [](const Candidate& l) { return bytes_text(l.traffic_bytes); });
  add("verdict", [&](const Candidate& l) {
    return (l.meets_limits ? "meets the limits" : standing(of, layouts.front(), l, "the first")) +
           std::string(is_extrapolated(of, l.layout) ? " (extrapolated)" : "");
  });
  std::string text = objective_text(of.request.workload) + "\n";
  return text + table(rows, 1, false);
}

}  // namespace weft::launch
