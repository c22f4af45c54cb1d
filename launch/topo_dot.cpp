// The tree as a Graphviz graph: a box around each NUMA node, dashed lines for NVLink.
#include <fmt/format.h>

#include <algorithm>

#include "launch/topo_drawing.h"
#include "launch/topo_tree.h"
#include "parallel/gpu_distance.h"

namespace weft::launch {
namespace {

using Kind = TopoNode::Kind;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

class DotWriter {
 public:
  DotWriter(const parallel::Topology& topology, const parallel::Placement& placement)
      : t_(topology), placement_(placement) {}

  std::string draw() {
    text_ = fmt::format(
        "graph topology {{\n  label={};\n  rankdir=LR;\n  node [shape=box, fontname=Helvetica];\n",
        quoted(t_.source + ": " + machine_text(t_)));
    for (const TopoNode& numa : topo_tree(t_).children) add_numa(numa);
    add_nvlinks();
    return text_ + "}\n";
  }

 private:
  void add_numa(const TopoNode& numa) {
    text_ += fmt::format("  subgraph cluster_{} {{\n    label={};\n", next_,
                         quoted(numa.name + "  " + numa.detail));
    const size_t id = next_++;
    text_ += fmt::format("    n{} [label={}, shape=ellipse];\n", id, quoted(numa.name));
    for (const TopoNode& child : numa.children) add_node(child, id);
    text_ += "  }\n";
  }

  void add_node(const TopoNode& node, size_t parent) {
    const size_t id = next_++;
    std::string label = node.name + "\n" + node.detail;
    std::string style;
    if (node.kind == Kind::gpu) {
      gpu_node_.resize(std::max(gpu_node_.size(), node.device + 1));
      gpu_node_[node.device] = id;
      const std::string ranks = ranks_on(placement_, node.device);
      if (!ranks.empty()) label += "\n" + ranks;
      style = ", style=filled, fillcolor=\"#d5e8d4\"";
    }
    text_ += fmt::format("    n{} [label={}{}];\n    n{} -- n{};\n", id, quoted(label), style,
                         parent, id);
    for (const TopoNode& child : node.children) add_node(child, id);
  }

  void add_nvlinks() {
    for (size_t a = 0; a < t_.nvlinks.size(); ++a)
      for (size_t b = 0; b < a; ++b)
        if (t_.nvlinks[a][b] > 0)
          text_ += fmt::format(
              "  n{} -- n{} [style=dashed, color=\"#6a9a4f\", constraint=false, label={}];\n",
              gpu_node_[b], gpu_node_[a], quoted(nvlink_text(t_, t_.nvlinks[a][b])));
  }

  const parallel::Topology& t_;
  const parallel::Placement& placement_;
  std::string text_;
  size_t next_ = 0;
  std::vector<size_t> gpu_node_;
};

}  // namespace

std::string topology_dot(const parallel::Topology& topology, const parallel::Placement& placement) {
  return DotWriter(topology, placement).draw();
}

}  // namespace weft::launch
