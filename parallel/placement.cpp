// GPUs by their distances, then whole cores near each GPU's root complex, then memory and cards.
#include "parallel/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <numeric>

#include "parallel/core_split.h"
#include "parallel/gpu_assignment.h"
#include "parallel/gpu_distance.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr size_t kMostRanks = 1024;  // on one host

using GpuOfRank = std::vector<std::optional<size_t>>;

void check_request(const PlacementRequest& request) {
  if (request.n_ranks == 0 || request.n_ranks > kMostRanks)
    throw input_error("{} ranks on a host; from 1 to {} can be placed", request.n_ranks,
                      kMostRanks);
  const size_t in_groups = std::accumulate(request.groups.begin(), request.groups.end(), size_t{0});
  if (!request.groups.empty() && in_groups != request.n_ranks)
    throw input_error("tensor-parallel groups of {} ranks in all for {} ranks", in_groups,
                      request.n_ranks);
}

// Ranks i and i + n share a GPU, so that each GPU has as many.
GpuOfRank share_gpus(const PlacementRequest& request, const std::vector<size_t>& order) {
  GpuOfRank gpus;
  for (size_t rank = 0; rank < request.n_ranks; ++rank)
    gpus.push_back(order[rank * order.size() / request.n_ranks]);
  return gpus;
}

GpuOfRank choose_gpus(const Topology& t, const PlacementRequest& request,
                      std::vector<std::string>& doubts) {
  const std::vector<size_t>& visible = request.visible_gpus;
  if (!request.use_gpus) return GpuOfRank(request.n_ranks);
  if (visible.empty()) {
    if (!t.gpus.empty())
      doubts.push_back(
          fmt::format("none of the {} GPUs is visible: ranks run on CPUs", t.gpus.size()));
    return GpuOfRank(request.n_ranks);
  }
  std::vector<size_t> groups = request.groups;
  if (groups.empty()) groups.push_back(std::min(request.n_ranks, visible.size()));
  if (request.n_ranks <= visible.size()) {
    const std::vector<size_t> gpus = assign_gpus(t, groups, visible);
    return GpuOfRank(gpus.begin(), gpus.end());
  }
  if (!request.share_gpus)
    throw input_error(
        "{} ranks for {} GPU{}: start no more than {} on this host, or let ranks share a GPU with "
        "--share-gpus",
        request.n_ranks, visible.size(), visible.size() == 1 ? "" : "s", visible.size());
  doubts.push_back(fmt::format("{} ranks share {} GPUs", request.n_ranks, visible.size()));
  const std::vector<size_t> one_group = {visible.size()};
  return share_gpus(request, assign_gpus(t, one_group, visible));
}

// Ranks on CPUs: the NUMA node in which the middle of the rank's share of all cores lies; all CPUs
// where there are fewer ranks than nodes, or more than cores.
std::vector<CpuSet> spread_over_nodes(const Topology& t, size_t n_ranks) {
  std::vector<std::pair<size_t, CpuSet>> nodes;  // cores before its end
  size_t n_cores = 0;
  for (const NumaNode& node : t.numa) {
    const auto here = std::count_if(t.cores.begin(), t.cores.end(),
                                    [&](const CpuSet& core) { return node.cpus.intersects(core); });
    if (here == 0) continue;
    n_cores += static_cast<size_t>(here);
    nodes.emplace_back(n_cores, node.cpus);
  }
  std::vector<CpuSet> wanted(n_ranks, t.cpus);
  if (nodes.empty() || n_ranks < nodes.size() || n_ranks > n_cores) return wanted;
  for (size_t rank = 0; rank < n_ranks; ++rank) {
    const double middle = (static_cast<double>(rank) + 0.5) * static_cast<double>(n_cores) /
                          static_cast<double>(n_ranks);
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const auto& candidate) {
      return middle < static_cast<double>(candidate.first);
    });
    wanted[rank] = node->second;
  }
  return wanted;
}

std::vector<CpuSet> wanted_cpus(const Topology& t, const GpuOfRank& gpus) {
  const auto n_on_cpus = static_cast<size_t>(std::count(gpus.begin(), gpus.end(), std::nullopt));
  std::vector<CpuSet> spread = spread_over_nodes(t, n_on_cpus);
  std::vector<CpuSet> wanted;
  size_t next = 0;
  for (const std::optional<size_t>& gpu : gpus)
    wanted.push_back(gpu ? nearest_cpus(t, t.gpus[*gpu]) : spread[next++]);
  return wanted;
}

// The first core runs the steps, the others the helpers; of one core, its two threads part; with
// one thread there is nothing to part.
void part_threads(const std::vector<CpuSet>& cores, RankPlace& place) {
  place.step_cpus = cores.front() & place.cpus;
  place.helper_cpus = place.cpus - place.step_cpus;
  if (!place.helper_cpus.empty()) return;
  const std::vector<size_t> threads = place.cpus.cpus();
  place.helper_cpus = place.step_cpus;
  if (threads.size() < 2) return;
  place.step_cpus = CpuSet::range(threads[0], threads[0] + 1);
  place.helper_cpus = place.cpus - place.step_cpus;
}

std::vector<int> nodes_of(const Topology& t, const RankPlace& place) {
  const int known = place.gpu ? t.roots[t.gpus[*place.gpu].root].numa : -1;
  if (known >= 0) return {known};
  std::vector<int> nodes;
  for (const NumaNode& node : t.numa)
    if (place.binds && node.cpus.intersects(place.cpus)) nodes.push_back(node.id);
  if (nodes.size() == t.numa.size() && nodes.size() > 1) nodes.clear();  // no preference
  return nodes;
}

std::string reason(const Topology& t, const RankPlace& place, size_t n_sharing) {
  std::string near = "all CPUs";
  if (place.gpu && !t.roots[t.gpus[*place.gpu].root].cpus.empty())
    near = "CPUs near root " + t.roots[t.gpus[*place.gpu].root].name;
  else if (!place.gpu && place.memory_nodes.size() == 1)
    near = fmt::format("CPUs of NUMA node {}", place.memory_nodes.front());
  if (!place.binds) return near + ", not bound: too few cores";
  return n_sharing == 1 ? near : fmt::format("{}, shared by {} ranks", near, n_sharing);
}

// "NVLink x18, PCI node": the worst pair of the group.
std::string bond(const Topology& t, const std::vector<size_t>& gpus) {
  unsigned links = UINT_MAX;
  PciDistance farthest = PciDistance::same_switch;
  for (const size_t a : gpus)
    for (const size_t b : gpus) {
      if (a == b) continue;
      if (!t.nvlinks.empty()) links = std::min(links, t.nvlinks[a][b]);
      farthest = std::max(farthest, pci_distance(t, t.gpus[a], t.gpus[b]));
    }
  const std::string pci = fmt::format("PCI {}", distance_name(farthest));
  if (t.nvlinks.empty()) return pci + ", NVLink not known";
  return links == 0 ? pci + ", not all NVLinked" : nvlink_text(t, links) + ", " + pci;
}

void describe_groups(const Topology& t, const std::vector<size_t>& groups, Placement& placement) {
  size_t first = 0;
  for (const size_t size : groups) {
    std::vector<size_t> gpus;
    for (size_t rank = first; rank < first + size; ++rank)
      if (placement.ranks[rank].gpu) gpus.push_back(*placement.ranks[rank].gpu);
    if (gpus.size() > 1)
      placement.groups.push_back(
          fmt::format("ranks {}-{}: {}", first, first + size - 1, bond(t, gpus)));
    first += size;
  }
}

}  // namespace

Placement place_on(const Topology& t, const GpuOfRank& gpus) {
  Placement placement;
  const std::vector<CpuSet> wanted = wanted_cpus(t, gpus);
  const std::vector<std::vector<size_t>> given = split_cores(t.cores, wanted);
  // Where cores don't go round among ranks that want the same, none of these is bound.
  const auto short_of_cores = [&](size_t rank) {
    for (size_t other = 0; other < gpus.size(); ++other)
      if (wanted[other].intersects(wanted[rank]) && given[other].empty()) return true;
    return false;
  };
  size_t n_unbound = 0;
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    RankPlace place;
    place.gpu = gpus[rank];
    place.binds = !short_of_cores(rank);
    if (!place.binds) ++n_unbound;
    std::vector<CpuSet> cores;
    for (const size_t core : given[rank]) {
      cores.push_back(t.cores[core]);
      place.cpus = place.cpus | (t.cores[core] & wanted[rank]);
    }
    if (!place.binds) place.cpus = place.step_cpus = place.helper_cpus = wanted[rank];
    if (place.binds) part_threads(cores, place);
    place.memory_nodes = nodes_of(t, place);
    if (place.gpu) place.cards = nearest_cards(t, t.gpus[*place.gpu]);
    const auto n_sharing =
        static_cast<size_t>(std::count(wanted.begin(), wanted.end(), wanted[rank]));
    place.why = reason(t, place, n_sharing);
    placement.ranks.push_back(std::move(place));
  }
  if (n_unbound > 0)
    placement.doubts.push_back(
        fmt::format("{} ranks are more than the cores they want: they are not bound to cores of "
                    "their own",
                    n_unbound));
  return placement;
}

Placement place(const Topology& t, const PlacementRequest& request) {
  check_request(request);
  std::vector<std::string> doubts;
  const GpuOfRank gpus = choose_gpus(t, request, doubts);
  Placement placement = place_on(t, gpus);
  placement.doubts.insert(placement.doubts.begin(), doubts.begin(), doubts.end());
  describe_groups(t, request.groups.empty() ? std::vector<size_t>{request.n_ranks} : request.groups,
                  placement);
  return placement;
}

}  // namespace weft::parallel
