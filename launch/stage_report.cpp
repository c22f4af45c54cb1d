#include "launch/stage_report.h"

#include <fmt/format.h>

namespace weft::launch {
namespace {

std::optional<double> mean(double ms, size_t n) {
  if (n == 0) return std::nullopt;
  return ms / static_cast<double>(n);
}

std::string beside(std::string_view what, const std::optional<double>& measured, double predicted) {
  if (!measured || predicted <= 0) return "";
  return fmt::format(", {} {:.2f} ms ({:.2f} predicted)", what, *measured, predicted);
}

}  // namespace

std::optional<double> StageReport::prefill_ms() const {
  return mean(times.busy_ms - times.decode_ms, times.n_batches - times.n_decodes);
}

std::optional<double> StageReport::decode_ms() const {
  return mean(times.decode_ms, times.n_decodes);
}

std::vector<StageReport> make_reports(const planner::Plan& plan,
                                      const std::vector<runtime::StageTimes>& times) {
  std::vector<StageReport> reports;
  const std::optional<planner::Speed>& speed = plan.predicted.speed;
  size_t rank = 0;
  for (const planner::Stage& stage : plan.replicas.front().stages) {
    StageReport& made = reports.emplace_back();
    made.layers = stage.layers;
    made.tp = stage.tp;
    made.times = times.at(rank);
    if (speed) made.predicted = speed->stages.at(reports.size() - 1);
    rank += stage.tp;
  }
  return reports;
}

std::string to_text(const StageReport& stage) {
  std::string text = fmt::format(
      "layers {}-{} on {} ranks: {} batches, {:.1f} ms busy, {:.1f} ms waiting for input",
      stage.layers.begin, stage.layers.end - 1, stage.tp, stage.times.n_batches,
      stage.times.busy_ms, stage.times.wait_ms);
  if (!stage.predicted) return text;
  return text + beside("a prefill", stage.prefill_ms(), stage.predicted->prefill_ms) +
         beside("a decode step", stage.decode_ms(), stage.predicted->decode_ms);
}

}  // namespace weft::launch
