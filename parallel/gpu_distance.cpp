// Distances on the PCI tree, with NVLink laid over it.
#include "parallel/gpu_distance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

namespace weft::parallel {
namespace {

// A pair without NVLink costs more than any with: 200 against at most 100 + 30 + 9.
constexpr int kOneLink = 100;
constexpr int kNoLink = 200;
constexpr int kStep = 10;  // of PciDistance
constexpr size_t kMostBridges = 9;

// Bridges that only one of the two has on its way.
size_t n_bridges_between(const PciDevice& a, const PciDevice& b) {
  const auto [end_a, end_b] =
      std::mismatch(a.switches.begin(), a.switches.end(), b.switches.begin(), b.switches.end());
  return static_cast<size_t>((a.switches.end() - end_a) + (b.switches.end() - end_b));
}

}  // namespace

PciDistance pci_distance(const Topology& t, const PciDevice& a, const PciDevice& b) {
  const PciRoot& root_a = t.roots[a.root];
  const PciRoot& root_b = t.roots[b.root];
  if (a.root == b.root) {
    const bool meet = !a.switches.empty() && !b.switches.empty() && a.switches[0] == b.switches[0];
    return meet ? PciDistance::same_switch : PciDistance::same_root;
  }
  const bool same_node = root_a.numa >= 0 && root_a.numa == root_b.numa;
  return same_node || t.numa.size() == 1 ? PciDistance::same_node : PciDistance::across;
}

std::string_view distance_name(PciDistance distance) {
  constexpr std::array<std::string_view, 4> kNames = {"switch", "root", "node", "across"};
  return kNames[static_cast<size_t>(distance)];
}

std::vector<size_t> nearest_cards(const Topology& t, const Gpu& gpu) {
  std::vector<size_t> near;
  PciDistance nearest = PciDistance::across;
  for (size_t i = 0; i < t.cards.size(); ++i) {
    const PciDistance distance = pci_distance(t, gpu, t.cards[i]);
    if (distance > nearest) continue;
    if (distance < nearest) near.clear();
    nearest = distance;
    near.push_back(i);
  }
  return near;
}

std::string nvlink_text(const Topology& t, unsigned n_links) {
  if (n_links == 0) return {};
  return t.nvlinks_counted ? fmt::format("NVLink x{}", n_links) : "NVLink";
}

std::string way_between(const Topology& t, size_t a, size_t b) {
  const unsigned links = t.nvlinks.empty() ? 0 : t.nvlinks[a][b];
  if (links > 0) return nvlink_text(t, links);
  switch (pci_distance(t, t.gpus[a], t.gpus[b])) {
    case PciDistance::same_switch:
      // The two ports of one switch are bridges too.
      return n_bridges_between(t.gpus[a], t.gpus[b]) <= 2 ? "PIX" : "PXB";
    case PciDistance::same_root:
      return "PHB";
    case PciDistance::same_node:
      return "NODE";
    default:
      return "SYS";
  }
}

int pair_cost(const Topology& t, size_t a, size_t b) {
  const unsigned links = t.nvlinks.empty() ? 0 : t.nvlinks[a][b];
  const int by_link = links == 0 ? kNoLink : kOneLink / static_cast<int>(links);
  const size_t bridges = std::min(n_bridges_between(t.gpus[a], t.gpus[b]), kMostBridges);
  return by_link + kStep * static_cast<int>(pci_distance(t, t.gpus[a], t.gpus[b])) +
         static_cast<int>(bridges);
}

std::vector<size_t> gpus_by_place(const Topology& t) {
  std::vector<size_t> order(t.gpus.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // A root's first GPU stands for it, so that roots keep the order of the bus ids.
  std::vector<size_t> first_of(t.roots.size(), t.gpus.size());
  for (size_t i = t.gpus.size(); i-- > 0;) first_of[t.gpus[i].root] = i;
  const auto key = [&](size_t i) {
    const Gpu& gpu = t.gpus[i];
    return std::tuple(t.roots[gpu.root].numa, first_of[gpu.root], gpu.switches, i);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace weft::parallel
