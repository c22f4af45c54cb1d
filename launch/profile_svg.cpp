// Bars in milliseconds: all of a step on one scale, its layers on another.
#include <fmt/format.h>

#include <algorithm>

#include "launch/profile_report.h"
#include "launch/svg.h"

namespace weft::launch {
namespace {

using runtime::kStepPartNames;

constexpr double kWidth = 960, kMargin = 16, kName = 190, kTime = 90;
constexpr double kBar = 22, kThinBar = 7, kGap = 6, kHead = 40, kKey = 18;
// One a part, in the order of StepPart; far enough apart for neighbours to be told from each other.
constexpr const char* kColours[] = {"#8c564b", "#c7c7c7", "#1f77b4", "#d62728",
                                    "#17becf", "#2ca02c", "#ff7f0e", "#bcbd22",
                                    "#e377c2", "#9467bd", "#e7ba52", "#7f7f7f"};
static_assert(std::size(kColours) == kStepPartNames.size());

class Drawing {
 public:
  // Parts side by side, `scale` pixels a millisecond.
  void bar(std::string_view name, const PartTimes& times, double scale, double height) {
    if (!name.empty()) text(kMargin, y_ + height - 6, name);
    double x = kMargin + kName;
    for (size_t part = 0; part < times.size(); ++part) {
      const double width = times[part] * scale;
      if (width <= 0) continue;
      body_ += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>"
          "{} {:.4f} ms</title></rect>\n",
          x, y_, width, height, kColours[part], kStepPartNames[part], times[part]);
      x += width;
    }
    if (!name.empty()) text(x + kGap, y_ + height - 6, fmt::format("{:.3f} ms", total_ms(times)));
    y_ += height;
  }
  void line(std::string_view what) {
    y_ += kHead;
    body_ += fmt::format("<text x=\"{}\" y=\"{:.2f}\" font-weight=\"bold\">{}</text>\n", kMargin,
                         y_ - kGap, escape_html(what));
  }
  void gap() { y_ += kGap; }
  void key() {
    double x = kMargin;
    y_ += kGap;
    for (size_t part = 0; part < kStepPartNames.size(); ++part) {
      body_ +=
          fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                      x, y_, kColours[part]);
      text(x + 16, y_ + 11, kStepPartNames[part]);
      x += (kWidth - 2 * kMargin) / static_cast<double>(kStepPartNames.size());
    }
    y_ += kKey;
  }
  std::string finish() const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" "
               "viewBox=\"0 0 {0} {1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" "
               "font-size=\"12\">\n",
               kWidth, y_ + kMargin) +
           body_ + "</svg>\n";
  }

 private:
  void text(double x, double y, std::string_view what) {
    body_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n", x, y, escape_html(what));
  }

  double y_ = 0;
  std::string body_;
};

double scale_for(double longest_ms) {
  return (kWidth - 2 * kMargin - kName - kTime) / std::max(longest_ms, 1e-9);
}

}  // namespace

std::string profile_svg(const Profile& profile) {
  Drawing drawing;
  drawing.line(fmt::format("{}, layout {}, {}", profile.model, profile.layout, profile.device));
  drawing.key();
  for (const CaseProfile& of : profile.cases) {
    double longest = 0, longest_layer = 0;
    for (const RankTimes& rank : of.ranks) {
      longest = std::max(longest, total_ms(rank.ms));
      for (const LayerTimes& layer : rank.layers)
        longest_layer = std::max(longest_layer, total_ms(layer.ms));
    }
    drawing.line(fmt::format("{}: {:.3f} ms a step", of.of.name(), of.of.measured_ms));
    for (const RankTimes& rank : of.ranks) {
      drawing.bar(fmt::format("rank {}, stage {}", rank.rank, rank.stage), rank.ms,
                  scale_for(longest), kBar);
      drawing.gap();
    }
    drawing.line(
        fmt::format("{}, by layer: the longest is {:.4f} ms", of.of.name(), longest_layer));
    for (const RankTimes& rank : of.ranks) {
      if (rank.tp_rank > 0) continue;
      for (const LayerTimes& layer : rank.layers)
        drawing.bar("", layer.ms, scale_for(longest_layer), kThinBar);
    }
  }
  return drawing.finish();
}

}  // namespace weft::launch
