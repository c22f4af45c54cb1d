#include "launch/plan_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "launch/plan_breakdown.h"
#include "launch/svg.h"
#include "planner/event_simulation.h"
#include "planner/memory_model.h"

namespace weft::launch {
namespace {

using planner::Candidate;
using planner::NodeClass;

constexpr size_t kMostNodesDrawn = 32;

// Class of a part of memory or time, of which the page's style has a colour each.
std::string part_class(std::string_view title) {
  std::string name = "p-";
  for (const char c : title) name += std::isalpha(static_cast<unsigned char>(c)) ? c : '-';
  return name;
}

const NodeClass& class_of(const planner::ClusterSpec& cluster, size_t node) {
  for (const NodeClass& nodes : cluster.nodes) {
    if (node < nodes.count) return nodes;
    node -= nodes.count;
  }
  return cluster.nodes.back();
}

// node -> gpu -> stage
std::map<size_t, std::map<size_t, size_t>> stages_by_slot(const planner::Plan& plan) {
  std::map<size_t, std::map<size_t, size_t>> found;
  const std::vector<planner::Stage>& stages = plan.replicas.front().stages;
  for (size_t s = 0; s < stages.size(); ++s)
    for (const planner::Slot& slot : stages[s].slots) found[slot.node][slot.gpu] = s;
  return found;
}

struct NodeBox {
  static constexpr double kHead = 24, kBar = 110, kFoot = 36, kPad = 10, kGap = 16;
  static constexpr double height() { return kHead + kBar + kFoot + kPad; }
};

void draw_memory(Svg& svg, double x, double y, double width, const Candidate& best, size_t stage,
                 size_t gpu) {
  const std::vector<planner::BytesPart> parts = memory_of(best, stage);
  const auto limit = static_cast<double>(std::max<size_t>(1, best.stages[stage].rank_memory_bytes));
  double bottom = y + NodeBox::kBar;
  svg.rect(x, y, width, NodeBox::kBar, "free",
           fmt::format("GPU {}, stage {}: {} of {} GiB", gpu, stage,
                       planner::gib_text(total_bytes(parts)),
                       planner::gib_text(best.stages[stage].rank_memory_bytes)));
  for (const planner::BytesPart& part : parts) {
    const double height = static_cast<double>(part.bytes) / limit * NodeBox::kBar;
    bottom -= height;
    svg.rect(x, bottom, width, height, part_class(part.title),
             fmt::format("{} {} GiB", part.title, planner::gib_text(part.bytes)));
  }
}

void draw_node(Svg& svg, double x, double y, double width, const PlanCase& of,
               const PlanResult& result, size_t node, const std::map<size_t, size_t>& stage_of) {
  const NodeClass& facts = class_of(of.request.cluster, node);
  svg.rect(x, y, width, NodeBox::height(), "node");
  svg.text(x + NodeBox::kPad, y + 16, "start strong", fmt::format("node {}", node));
  svg.text(x + width - NodeBox::kPad, y + 16, "end small",
           fmt::format("{} x {}", facts.gpus, facts.gpu));
  const double step = (width - 2 * NodeBox::kPad) / static_cast<double>(facts.gpus);
  for (size_t gpu = 0; gpu < facts.gpus; ++gpu) {
    const double left = x + NodeBox::kPad + static_cast<double>(gpu) * step + step * 0.1;
    const double middle = left + step * 0.4;
    const double top = y + NodeBox::kHead;
    const auto found = stage_of.find(gpu);
    if (found == stage_of.end()) {
      svg.rect(left, top, step * 0.8, NodeBox::kBar, "idle", fmt::format("GPU {}: not used", gpu));
    } else {
      draw_memory(svg, left, top, step * 0.8, result.search.best, found->second, gpu);
      svg.text(middle, top + NodeBox::kBar + 26, "middle stage", fmt::format("s{}", found->second));
    }
    svg.text(middle, top + NodeBox::kBar + 13, "middle small", fmt::format("{}", gpu));
  }
}

std::vector<planner::StageStep> steps_of(const PlanCase& of, const Candidate& best) {
  planner::SimulatedLoad load;
  for (const planner::StageFigures& stage : best.stages)
    load.stages.push_back({{stage.prefill_ms, stage.decode_ms}, {}});
  load.batches_in_flight = best.layout.schedule.batches_in_flight;
  load.sequences = load.batches_in_flight;
  load.prompt_chunks =
      planner::prompt_chunks(of.request.workload.prompt_tokens, best.layout.schedule.prefill_chunk);
  constexpr size_t many_tokens = 1000;  // none ends while it is drawn
  load.output_tokens = many_tokens;
  const size_t prefills = load.sequences * load.prompt_chunks;
  return simulated_steps(load, std::min<size_t>(prefills, 60) + 6 * load.batches_in_flight);
}

std::string_view step_class(const planner::StageStep& step) {
  if (step.decodes && step.prefills) return "step-both";
  return step.decodes ? "step-decode" : "step-prefill";
}

void draw_axis(Svg& svg, double left, double right, double y, double most, std::string_view unit) {
  const double step = tick_step(most, 8);
  for (double at = 0; at <= most * 1.0001; at += step) {
    const double x = left + (right - left) * at / most;
    svg.line(x, y, x, y + 5, "axis");
    svg.text(x, y + 18, "middle small", fmt::format("{:g}", at));
  }
  svg.line(left, y, right, y, "axis");
  svg.text(right, y + 32, "end small", unit);
}

// From a number to a place on an axis, by its logarithm.
struct LogScale {
  double low, high, from, to;

  LogScale(std::vector<double> values, double from_at, double to_at) : from(from_at), to(to_at) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    low = std::log10(*least * 0.9);
    high = std::log10(*most * 1.1);
  }
  double operator()(double value) const {
    return from + (to - from) * (std::log10(value) - low) / (high - low);
  }
  std::vector<double> ticks() const {
    std::vector<double> all;
    for (double power = std::pow(10, std::floor(low)); power <= std::pow(10, high); power *= 10)
      for (const double factor : {1.0, 1.5, 2.0, 3.0, 5.0, 7.0})
        if (const double at = std::log10(factor * power); at >= low && at <= high)
          all.push_back(factor * power);
    return all;
  }
};

bool drawable(const Candidate& layout) {
  return std::isfinite(layout.latency_ms) && layout.latency_ms > 0 && layout.tokens_per_s > 0;
}

std::string point_title(const Candidate& layout) {
  return fmt::format("{}: {} GPUs, {:.1f} ms a request, {:.0f} tokens/s",
                     layout_text(layout.layout), layout.gpus, layout.latency_ms,
                     layout.tokens_per_s);
}

void draw_log_axes(Svg& svg, const LogScale& x, const LogScale& y) {
  for (const double at : x.ticks()) {
    svg.line(x(at), y.from, x(at), y.to, "grid");
    svg.text(x(at), y.from + 16, "middle small", fmt::format("{:g}", at));
  }
  for (const double at : y.ticks()) {
    svg.line(x.from, y(at), x.to, y(at), "grid");
    svg.text(x.from - 6, y(at) + 4, "end small", fmt::format("{:g}", at));
  }
  svg.line(x.from, y.from, x.to, y.from, "axis");
  svg.line(x.from, y.from, x.from, y.to, "axis");
  svg.text(x.to, y.from + 32, "end small", "ms of a request (log)");
  svg.text(x.from, y.to - 14, "start small", "tokens/s of all GPUs (log)");
}

void draw_parts(Svg& svg, double y, std::string_view title, const std::vector<TimePart>& parts,
                double most) {
  constexpr double left = 230, right = kPageWidth - 90, height = 18;
  double x = left, total = 0;
  svg.text(left - 8, y + 13, "end small", title);
  for (const TimePart& part : parts) {
    const double width = (right - left) * std::max(0.0, part.ms) / most;
    svg.rect(x, y, width, height, part_class(part.title),
             fmt::format("{} {:.3f} ms", part.title, part.ms));
    x += width;
    total += part.ms;
  }
  svg.text(x + 6, y + 13, "start small", fmt::format("{:.2f} ms", total));
}

double sum(const std::vector<TimePart>& parts) {
  double total = 0;
  for (const TimePart& part : parts) total += part.ms;
  return total;
}

}  // namespace

std::string nodes_chart(const PlanCase& of, const PlanResult& result) {
  const auto slots = stages_by_slot(result.plan);
  size_t most_gpus = 1;
  for (const auto& [node, stages] : slots)
    most_gpus = std::max(most_gpus, class_of(of.request.cluster, node).gpus);
  const double wanted = std::clamp(static_cast<double>(most_gpus) * 54 + 20, 220.0, kPageWidth);
  const auto columns = static_cast<size_t>((kPageWidth + NodeBox::kGap) / (wanted + NodeBox::kGap));
  const double width = (kPageWidth - static_cast<double>(columns - 1) * NodeBox::kGap) /
                       static_cast<double>(columns);
  const size_t n_drawn = std::min(slots.size(), kMostNodesDrawn);
  const size_t n_rows = (n_drawn + columns - 1) / columns;
  Svg svg(kPageWidth, static_cast<double>(n_rows) * (NodeBox::height() + NodeBox::kGap),
          "stages over nodes and GPUs, with their memory");
  size_t drawn = 0;
  for (const auto& [node, stages] : slots) {
    if (drawn == n_drawn) break;
    const double x = static_cast<double>(drawn % columns) * (width + NodeBox::kGap);
    const double y = static_cast<double>(drawn / columns) * (NodeBox::height() + NodeBox::kGap);
    draw_node(svg, x, y, columns == 1 ? wanted : width, of, result, node, stages);
    ++drawn;
  }
  return svg.finish();
}

std::string schedule_chart(const PlanCase& of, const PlanResult& result) {
  const Candidate& best = result.search.best;
  const std::vector<planner::StageStep> steps = steps_of(of, best);
  constexpr double left = 70, right = kPageWidth - 10, row = 26;
  double most = 0;
  for (const planner::StageStep& step : steps) most = std::max(most, step.end_ms);
  const double bottom = 6 + row * static_cast<double>(best.stages.size());
  Svg svg(kPageWidth, bottom + 40, "the schedule: what each stage does when");
  for (size_t s = 0; s < best.stages.size(); ++s)
    svg.text(left - 8, 6 + row * static_cast<double>(s) + 17, "end small",
             fmt::format("stage {}", s));
  for (const planner::StageStep& step : steps) {
    if (step.end_ms <= step.begin_ms) continue;
    const double x = left + (right - left) * step.begin_ms / most;
    const double width = (right - left) * (step.end_ms - step.begin_ms) / most;
    const double y = 6 + row * static_cast<double>(step.stage);
    svg.rect(x, y, width, row - 4, step_class(step),
             fmt::format("batch {}, {:.2f} to {:.2f} ms", step.batch, step.begin_ms, step.end_ms));
    if (width > 14) svg.text(x + width / 2, y + 15, "middle step", fmt::format("{}", step.batch));
  }
  draw_axis(svg, left, right, bottom, most, "ms");
  return svg.finish();
}

std::string front_chart(const PlanResult& result) {
  std::vector<double> latencies, rates;
  for (const std::vector<Candidate>* list : {&result.search.ranked, &result.search.front})
    for (const Candidate& layout : *list) {
      if (!drawable(layout)) continue;
      latencies.push_back(layout.latency_ms);
      rates.push_back(layout.tokens_per_s);
    }
  constexpr double height = 340;
  Svg svg(kPageWidth, height, "latency against tokens a second");
  if (latencies.empty()) return svg.finish();
  const LogScale x(latencies, 70, kPageWidth - 40);
  const LogScale y(rates, height - 44, 30);
  draw_log_axes(svg, x, y);
  const auto draw = [&](const Candidate& layout, double radius, std::string_view css_class) {
    if (drawable(layout))
      svg.circle(x(layout.latency_ms), y(layout.tokens_per_s), radius, css_class,
                 point_title(layout));
  };
  for (const Candidate& layout : result.search.ranked) draw(layout, 4, "point");
  for (const Candidate& layout : result.search.front) {
    draw(layout, 5, "front");
    if (drawable(layout))
      svg.text(x(layout.latency_ms) + 8, y(layout.tokens_per_s) - 6, "start small",
               fmt::format("{}", layout.gpus));
  }
  draw(result.search.best, 7, "ringed");
  return svg.finish();
}

std::string time_chart(const PlanCase& of, const PlanResult& result) {
  const std::vector<Candidate>& ranked = result.search.ranked;
  const size_t n = std::min<size_t>(2, ranked.size());
  std::vector<Breakdown> all;
  double most_prefill = 1e-9, most_decode = 1e-9;
  for (size_t i = 0; i < n; ++i) {
    all.push_back(breakdown(of, ranked[i]));
    most_prefill = std::max(most_prefill, sum(all[i].prefill));
    most_decode = std::max(most_decode, sum(all[i].decode));
  }
  Svg svg(kPageWidth, 30 + static_cast<double>(n) * 54, "where the time goes");
  double y = 8;
  for (size_t i = 0; i < n; ++i, y += 26)
    draw_parts(svg, y, fmt::format("{}: a chunk of a prompt", i + 1), all[i].prefill, most_prefill);
  y += 14;
  for (size_t i = 0; i < n; ++i, y += 26)
    draw_parts(svg, y, fmt::format("{}: a decode step", i + 1), all[i].decode, most_decode);
  return svg.finish();
}

}  // namespace weft::launch
