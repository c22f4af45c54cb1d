// The tree as nested boxes: NUMA nodes below each other, their roots beside each other, what hangs
// from a root below its name.
#include <fmt/format.h>

#include <algorithm>

#include "launch/topo_drawing.h"
#include "launch/topo_tree.h"
#include "parallel/gpu_distance.h"

namespace weft::launch {
namespace {

using Kind = TopoNode::Kind;

constexpr double kMargin = 8;
constexpr double kLine = 16;     // height of a line of text
constexpr double kLetter = 6.4;  // width of a letter at 11 px, generously
constexpr size_t kRootsInARow = 4;
constexpr size_t kMostNvLinkPairs = 16;  // more are said in words

struct Box {
  const TopoNode* node = nullptr;
  std::vector<std::string> lines;
  double x = 0, y = 0, width = 0, height = 0;  // x, y: of the parent's corner
  std::vector<Box> children;
};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out;
}

Box layout(const TopoNode& node, const parallel::Placement& placement) {
  Box box;
  box.node = &node;
  box.lines.push_back(node.name);
  if (!node.detail.empty()) box.lines.push_back(node.detail);
  if (node.kind == Kind::gpu) box.lines.push_back(ranks_on(placement, node.device));
  if (box.lines.back().empty()) box.lines.pop_back();
  double text_width = 0;
  for (const std::string& line : box.lines)
    text_width = std::max(text_width, kLetter * static_cast<double>(line.size()));
  const size_t in_a_row = node.kind == Kind::numa ? kRootsInARow : 1;
  double x = kMargin, row_height = 0, widest = 0;
  double y = kLine * static_cast<double>(box.lines.size()) + kMargin;
  for (const TopoNode& child : node.children) {
    if (box.children.size() % in_a_row == 0 && !box.children.empty()) {
      y += row_height + kMargin;
      x = kMargin;
      row_height = 0;
    }
    Box inner = layout(child, placement);
    inner.x = x;
    inner.y = y;
    x += inner.width + kMargin;
    widest = std::max(widest, x);
    row_height = std::max(row_height, inner.height);
    box.children.push_back(std::move(inner));
  }
  box.width = std::max(text_width + 2 * kMargin, widest);
  box.height = y + row_height + (node.children.empty() ? 0 : kMargin);
  return box;
}

const char* colour(Kind kind) {
  switch (kind) {
    case Kind::machine:
      return "#ffffff";
    case Kind::numa:
      return "#f5f5f5";
    case Kind::root:
      return "#dae8fc";
    case Kind::bridge:
      return "#fff2cc";
    case Kind::gpu:
      return "#d5e8d4";
    case Kind::card:
      return "#ffe6cc";
    case Kind::other:
      return "#f8cecc";
  }
  return "#ffffff";
}

void draw(const Box& box, double x, double y, std::string& svg) {
  svg += fmt::format(
      "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"3\" fill=\"{}\" "
      "stroke=\"#666\"/>\n",
      x, y, box.width, box.height, colour(box.node->kind));
  for (size_t i = 0; i < box.lines.size(); ++i)
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\"{}>{}</text>\n", x + kMargin,
                       y + kLine * static_cast<double>(i + 1),
                       i == 0 ? " font-weight=\"bold\"" : "", escaped(box.lines[i]));
  for (const Box& child : box.children) draw(child, x + child.x, y + child.y, svg);
}

std::string nvlink_words(const parallel::Topology& t) {
  std::string words;
  size_t n_pairs = 0;
  for (size_t a = 0; a < t.nvlinks.size(); ++a)
    for (size_t b = a + 1; b < t.nvlinks.size(); ++b)
      if (t.nvlinks[a][b] > 0 && ++n_pairs <= kMostNvLinkPairs)
        words += fmt::format("{}{}-{} {}", n_pairs == 1 ? "" : ", ", a, b,
                             parallel::nvlink_text(t, t.nvlinks[a][b]));
  if (n_pairs == 0) return t.nvlinks.empty() ? "NVLink: not known" : "NVLink: none";
  if (n_pairs <= kMostNvLinkPairs) return "GPUs " + words;
  return fmt::format("NVLink between {} of {} pairs of GPUs", n_pairs,
                     t.nvlinks.size() * (t.nvlinks.size() - 1) / 2);
}

}  // namespace

std::string topology_svg(const parallel::Topology& topology, const parallel::Placement& placement) {
  TopoNode tree = topo_tree(topology);
  if (topology.gpus.size() > 1) tree.detail += ". " + nvlink_words(topology);
  const Box box = layout(tree, placement);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 "
      "{0:.0f} {1:.0f}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n",
      box.width + 2 * kMargin, box.height + 2 * kMargin);
  draw(box, kMargin, kMargin, svg);
  return svg + "</svg>\n";
}

}  // namespace weft::launch
