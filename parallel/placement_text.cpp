// A placement as a table for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "parallel/placement.h"

namespace weft::parallel {
namespace {

using Row = std::vector<std::string>;

std::string card_label(const NetworkCard& card) {
  if (!card.rdma.empty()) return card.rdma.front();
  return card.interfaces.empty() ? card.bus_id : card.interfaces.front();
}

// Those that NCCL would take; where no card does RDMA, all.
std::string card_names(const Topology& t, const std::vector<size_t>& cards) {
  constexpr size_t kMostShown = 4;
  std::vector<std::string> names;
  const bool any_rdma = std::any_of(cards.begin(), cards.end(),
                                    [&](size_t card) { return !t.cards[card].rdma.empty(); });
  for (const size_t card : cards)
    if (!any_rdma || !t.cards[card].rdma.empty()) names.push_back(card_label(t.cards[card]));
  const size_t n_more = names.size() > kMostShown ? names.size() - kMostShown : 0;
  names.resize(names.size() - n_more);
  if (n_more > 0) names.push_back(fmt::format("and {} more", n_more));
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, " "));
}

size_t n_cores_in(const Topology& t, const CpuSet& cpus) {
  return static_cast<size_t>(std::count_if(
      t.cores.begin(), t.cores.end(), [&](const CpuSet& core) { return core.intersects(cpus); }));
}

Row row_of(const Topology& t, size_t rank, const RankPlace& place) {
  const Gpu* gpu = place.gpu ? &t.gpus[*place.gpu] : nullptr;
  const std::string memory =
      place.memory_nodes.empty() ? "any" : fmt::format("{}", fmt::join(place.memory_nodes, ","));
  return {fmt::format("{}", rank),
          gpu ? fmt::format("{} {}", *place.gpu, gpu->bus_id) : "CPU",
          gpu ? t.roots[gpu->root].name : "-",
          memory,
          fmt::format("{}", n_cores_in(t, place.cpus)),
          place.cpus.text(),
          place.step_cpus.text(),
          place.helper_cpus.text(),
          card_names(t, place.cards),
          place.why};
}

}  // namespace

std::string placement_text(const Topology& t, const Placement& placement) {
  std::vector<Row> rows = {
      {"rank", "GPU", "root", "NUMA", "cores", "CPUs", "step", "helpers", "cards", "why"}};
  for (size_t rank = 0; rank < placement.ranks.size(); ++rank)
    rows.push_back(row_of(t, rank, placement.ranks[rank]));
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i + 1 < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line + row.back() + "\n";
  }
  for (const std::string& group : placement.groups) text += "group: " + group + "\n";
  for (const std::string& doubt : placement.doubts) text += "doubt: " + doubt + "\n";
  return text;
}

}  // namespace weft::parallel
