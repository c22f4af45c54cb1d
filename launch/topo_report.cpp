// Text and JSON of a topology.
#include "launch/topo_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/topo_tree.h"
#include "parallel/gpu_distance.h"
#include "runtime/base/error.h"

namespace weft::launch {
namespace {

using nlohmann::json;
using parallel::Placement;
using parallel::Topology;

constexpr size_t kMostInTable = 16;  // GPUs: a line stays readable

void add_lines(const TopoNode& node, size_t depth, std::string& text) {
  text += fmt::format("{:{}}{}  {}\n", "", 2 * depth, node.name, node.detail);
  for (const TopoNode& child : node.children) add_lines(child, depth + 1, text);
}

std::string cell(const Topology& t, size_t a, size_t b) {
  if (a == b) return "-";
  const std::string_view pci = distance_name(pci_distance(t, t.gpus[a], t.gpus[b]));
  const unsigned links = t.nvlinks.empty() ? 0 : t.nvlinks[a][b];
  if (links == 0) return std::string(pci);
  return fmt::format("{} {}", t.nvlinks_counted ? fmt::format("x{}", links) : "NVLink", pci);
}

std::string distance_table(const Topology& t) {
  const size_t n = t.gpus.size();
  if (n < 2 || n > kMostInTable) return {};
  std::string text = "\nway between GPUs: switch, root (complex), node (NUMA), across";
  if (t.nvlinks.empty())
    text += "; NVLink is not known\n";
  else if (t.nvlinks_counted)
    text += fmt::format("; xN: N NVLinks, from {}\n", t.nvlink_source);
  else
    text += fmt::format("; NVLink: by {}, not counted\n", t.nvlink_source);
  size_t width = 6;
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < n; ++b) width = std::max(width, cell(t, a, b).size());
  const auto line = [&](const std::string& head, auto&& column) {
    std::string row = fmt::format("{:<6}", head);
    for (size_t b = 0; b < n; ++b) row += fmt::format("  {:<{}}", column(b), width);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  };
  line("", [](size_t b) { return fmt::format("GPU {}", b); });
  for (size_t a = 0; a < n; ++a)
    line(fmt::format("GPU {}", a), [&](size_t b) { return cell(t, a, b); });
  return text;
}

json device_json(const Topology& t, const parallel::PciDevice& device) {
  const parallel::PciRoot& root = t.roots[device.root];
  return {{"bus_id", device.bus_id},
          {"name", device.name},
          {"root", root.name},
          {"numa", root.numa},
          {"cpus", nearest_cpus(t, device).text()},
          {"switches", device.switches},
          {"link_gbps", device.link_gbps}};
}

json gpus_json(const Topology& t) {
  json gpus = json::array();
  for (const parallel::Gpu& gpu : t.gpus) {
    json one = device_json(t, gpu);
    one["uuid"] = gpu.uuid;
    one["memory_bytes"] = gpu.memory_bytes;
    one["mig_uuids"] = gpu.mig_uuids;
    one["usable"] = gpu.usable;
    one["nearest_cards"] = json::array();
    for (const size_t card : nearest_cards(t, gpu))
      one["nearest_cards"].push_back(t.cards[card].bus_id);
    gpus.push_back(std::move(one));
  }
  return gpus;
}

json cards_json(const Topology& t) {
  json cards = json::array();
  for (const parallel::NetworkCard& card : t.cards) {
    json one = device_json(t, card);
    one["rdma"] = card.rdma;
    one["interfaces"] = card.interfaces;
    cards.push_back(std::move(one));
  }
  return cards;
}

json distances_json(const Topology& t) {
  json rows = json::array();
  for (const parallel::Gpu& a : t.gpus) {
    json row = json::array();
    for (const parallel::Gpu& b : t.gpus)
      row.push_back(&a == &b ? "self" : std::string(distance_name(pci_distance(t, a, b))));
    rows.push_back(std::move(row));
  }
  return rows;
}

json ranks_json(const Topology& t, const Placement& placement) {
  json ranks = json::array();
  for (const parallel::RankPlace& place : placement.ranks) {
    json cards = json::array();
    for (const size_t card : place.cards) cards.push_back(t.cards[card].bus_id);
    ranks.push_back({{"rank", ranks.size()},
                     {"gpu", place.gpu ? json(t.gpus[*place.gpu].bus_id) : json()},
                     {"binds", place.binds},
                     {"cpus", place.cpus.text()},
                     {"step_cpus", place.step_cpus.text()},
                     {"helper_cpus", place.helper_cpus.text()},
                     {"memory_nodes", place.memory_nodes},
                     {"cards", std::move(cards)},
                     {"why", place.why}});
  }
  return ranks;
}

}  // namespace

std::string topology_text(const Topology& t) {
  std::string text = fmt::format("{}: {}\n", t.source, machine_text(t));
  for (const TopoNode& numa : topo_tree(t).children) add_lines(numa, 0, text);
  if (t.gpus.empty()) text += "no NVIDIA GPU\n";
  text += distance_table(t);
  for (const std::string& doubt : t.doubts) text += "doubt: " + doubt + "\n";
  return text;
}

std::string topology_json(const Topology& t, const Placement* placement) {
  json numa = json::array();
  for (const parallel::NumaNode& node : t.numa)
    numa.push_back(
        {{"id", node.id}, {"cpus", node.cpus.text()}, {"memory_bytes", node.memory_bytes}});
  json roots = json::array();
  for (const parallel::PciRoot& root : t.roots)
    roots.push_back({{"name", root.name}, {"numa", root.numa}, {"cpus", root.cpus.text()}});
  json object = {{"source", t.source},
                 {"product", t.product},
                 {"cpus", t.cpus.text()},
                 {"n_cores", t.cores.size()},
                 {"cores_guessed", !t.has_cores},
                 {"n_packages", t.n_packages},
                 {"numa", std::move(numa)},
                 {"roots", std::move(roots)},
                 {"gpus", gpus_json(t)},
                 {"cards", cards_json(t)},
                 {"distances", distances_json(t)},
                 {"nvlinks", t.nvlinks},
                 {"nvlinks_counted", t.nvlinks_counted},
                 {"nvlink_source", t.nvlink_source},
                 {"n_nvswitches", t.n_nvswitches},
                 {"doubts", t.doubts}};
  if (placement != nullptr) {
    object["ranks"] = ranks_json(t, *placement);
    object["groups"] = placement->groups;
    for (const std::string& doubt : placement->doubts) object["doubts"].push_back(doubt);
  }
  // Names in a file may hold any bytes.
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace weft::launch
