// Layouts and grids as people write them.
#include <fmt/format.h>

#include <algorithm>

#include "planner/search_report.h"

namespace weft::planner {
namespace {

bool same_kind(const PlacedStage& a, const PlacedStage& b) {
  return a.shape.tp == b.shape.tp && a.shape.ep == b.shape.ep && a.role == b.role &&
         a.shape.node_class == b.shape.node_class;
}

}  // namespace

std::string layout_text(const Layout& layout) {
  std::string text =
      layout.n_replicas == 1 ? std::string() : fmt::format("{} replicas of ", layout.n_replicas);
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    const PlacedStage& stage = layout.stages[s];
    const bool turns = s > 0 && layout.stages[s - 1].role != stage.role;
    text += turns ? " | " : s > 0 ? "," : "";
    text += fmt::format("{}x{}", stage.layers.size(), stage.shape.tp);
    if (stage.shape.ep > 1) text += fmt::format(" ep{}", stage.shape.ep);
  }
  return text;
}

std::string family_text(const Layout& layout) {
  std::string text;
  const std::vector<PlacedStage>& stages = layout.stages;
  for (size_t s = 0; s < stages.size();) {
    const PlacedStage& first = stages[s];
    size_t n = 0;
    for (; s < stages.size() && same_kind(stages[s], first); ++s) ++n;
    text += fmt::format("{}TP {}", text.empty() ? "" : " + ", first.shape.tp);
    if (first.shape.ep > 1) text += fmt::format(" EP {}", first.shape.ep);
    text += fmt::format(" x PP {}", n);
    if (first.role == Role::prefill) text += " (prefill)";
    if (first.role == Role::decode) text += " (decode)";
    if (first.shape.node_class > 0) text += fmt::format(" (nodes {})", first.shape.node_class);
  }
  return text;
}

std::string to_text(const SearchGrid& grid) {
  std::string text = fmt::format("TP {}; 1 to {} stages of a replica; 1 to {} replicas; ",
                                 fmt::join(grid.widths, " "), grid.most_stages, grid.most_replicas);
  text +=
      fmt::format("batch {}; batches in flight 1 to {}; prefill chunk {}",
                  fmt::join(grid.batches, " "), grid.most_in_flight, fmt::join(grid.chunks, " "));
  return text;
}

}  // namespace weft::planner
