// The cheapest partition of GPUs into groups: a table over the sets of GPUs taken so far, group by
// group.
#include "parallel/gpu_assignment.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdint>
#include <functional>

#include "parallel/gpu_distance.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr size_t kMostExact = 16;  // GPUs: 65,536 sets

using Mask = uint32_t;

// Sums of pair costs within each set of GPUs; bit i is gpus[i].
std::vector<int> set_costs(const Topology& t, const std::vector<size_t>& gpus) {
  std::vector<int> costs(size_t{1} << gpus.size());
  for (Mask set = 1; set < costs.size(); ++set) {
    const int lowest = std::countr_zero(set);
    int cost = costs[set & (set - 1)];
    for (Mask rest = set & (set - 1); rest != 0; rest &= rest - 1)
      cost += pair_cost(t, gpus[static_cast<size_t>(lowest)],
                        gpus[static_cast<size_t>(std::countr_zero(rest))]);
    costs[set] = cost;
  }
  return costs;
}

// Earlier GPUs first: of two sets of one size, the one whose lowest differing GPU is taken.
bool comes_first(Mask a, Mask b) {
  const Mask differ = a ^ b;
  return differ != 0 && (a & (differ & -differ)) != 0;
}

// The bits of `packed` moved to the places of the bits of `of`, lowest to lowest.
Mask spread(Mask packed, Mask of) {
  Mask placed = 0;
  for (; packed != 0; packed >>= 1, of &= of - 1)
    if (packed & 1) placed |= of & -of;
  return placed;
}

// Calls f(set) for each set of `size` of the GPUs in `free`.
template <class F>
void for_each_subset(Mask free, size_t size, F&& f) {
  const Mask end = Mask{1} << std::popcount(free);
  for (Mask packed = (Mask{1} << size) - 1; packed < end;) {
    f(spread(packed, free));
    // The next number with as many bits: the lowest run's top bit moves up, the rest falls down.
    const Mask low = packed & -packed;
    const Mask carried = packed + low;
    packed = carried | ((packed ^ carried) >> 2) / low;
  }
}

// The cheapest way to take the groups in order. Which group is next follows from how many GPUs are
// free, so a table over sets of free GPUs holds all there is to know.
class Partition {
 public:
  Partition(std::span<const size_t> groups, std::vector<int> costs)
      : groups_(groups), costs_(std::move(costs)), best_(costs_.size()) {}

  std::vector<Mask> solve() {
    Mask free = static_cast<Mask>(costs_.size() - 1);
    cost_of(0, free);
    std::vector<Mask> taken;
    for (size_t g = 0; g < groups_.size(); ++g) {
      taken.push_back(best_[free].taken);
      free &= ~taken.back();
    }
    return taken;
  }

 private:
  struct Choice {
    int cost = -1;  // not known yet
    Mask taken = 0;
  };

  int cost_of(size_t group, Mask free) {
    if (group == groups_.size()) return 0;
    if (best_[free].cost >= 0) return best_[free].cost;
    Choice found{INT_MAX, 0};
    for_each_subset(free, groups_[group], [&](Mask set) {
      const int cost = costs_[set] + cost_of(group + 1, free & ~set);
      if (cost < found.cost || (cost == found.cost && comes_first(set, found.taken)))
        found = {cost, set};
    });
    best_[free] = found;
    return found.cost;
  }

  std::span<const size_t> groups_;
  std::vector<int> costs_;
  std::vector<Choice> best_;
};

}  // namespace

std::vector<size_t> assign_gpus(const Topology& t, std::span<const size_t> groups,
                                std::span<const size_t> gpus) {
  size_t n_ranks = 0;
  for (const size_t size : groups) n_ranks += size;
  WEFT_EXPECT(n_ranks <= gpus.size());
  std::vector<size_t> by_place;
  for (const size_t gpu : gpus_by_place(t))
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) by_place.push_back(gpu);
  if (by_place.size() > kMostExact) {
    by_place.resize(n_ranks);
    return by_place;
  }
  std::vector<size_t> taken;  // rank by rank
  Partition partition(groups, set_costs(t, by_place));
  for (const Mask set : partition.solve())
    for (Mask rest = set; rest != 0; rest &= rest - 1)
      taken.push_back(by_place[static_cast<size_t>(std::countr_zero(rest))]);
  return taken;
}

std::vector<size_t> match_gpus(std::span<const std::vector<size_t>> seen_by_rank) {
  std::vector<size_t> gpu_of(seen_by_rank.size(), SIZE_MAX);
  // A rank takes a free GPU, or one whose rank can move to another (augmenting paths).
  std::vector<size_t> tried;
  const std::function<bool(size_t)> settle = [&](size_t rank) {
    for (const size_t gpu : seen_by_rank[rank]) {
      if (std::find(tried.begin(), tried.end(), gpu) != tried.end()) continue;
      tried.push_back(gpu);
      const auto owner = std::find(gpu_of.begin(), gpu_of.end(), gpu);
      if (owner != gpu_of.end() && !settle(static_cast<size_t>(owner - gpu_of.begin()))) continue;
      gpu_of[rank] = gpu;
      return true;
    }
    return false;
  };
  for (size_t rank = 0; rank < seen_by_rank.size(); ++rank) {
    tried.clear();
    settle(rank);
  }
  return gpu_of;
}

}  // namespace weft::parallel
