// Ranks that want the same CPUs form a group; cores that the same groups want form a pool. Groups
// fill up from pools first, then each group cuts its cores into runs.
#include "parallel/core_split.h"

#include <algorithm>
#include <map>
#include <optional>

namespace weft::parallel {
namespace {

struct Group {
  std::vector<size_t> members;  // ranks
  std::vector<size_t> cores;
  double per_member() const {
    return static_cast<double>(cores.size()) / static_cast<double>(members.size());
  }
};

struct Pool {
  std::vector<size_t> groups;  // that want it
  std::vector<size_t> cores;
  size_t n_taken = 0;
  bool empty() const { return n_taken == cores.size(); }
};

std::vector<Pool> make_pools(std::span<const CpuSet> cores,
                             const std::vector<const CpuSet*>& wanted) {
  std::map<std::vector<size_t>, std::vector<size_t>> cores_of;
  for (size_t core = 0; core < cores.size(); ++core) {
    std::vector<size_t> groups;
    for (size_t g = 0; g < wanted.size(); ++g)
      if (wanted[g]->intersects(cores[core])) groups.push_back(g);
    if (!groups.empty()) cores_of[groups].push_back(core);
  }
  std::vector<Pool> pools;
  for (auto& [groups, members] : cores_of) pools.push_back({groups, std::move(members), 0});
  // Pools that few want come first; a pool's first core decides among equals.
  std::stable_sort(pools.begin(), pools.end(), [](const Pool& a, const Pool& b) {
    return std::pair(a.groups.size(), a.cores[0]) < std::pair(b.groups.size(), b.cores[0]);
  });
  return pools;
}

Pool* pool_for(std::vector<Pool>& pools, size_t group) {
  for (Pool& pool : pools) {
    const bool wants =
        std::find(pool.groups.begin(), pool.groups.end(), group) != pool.groups.end();
    if (wants && !pool.empty()) return &pool;
  }
  return nullptr;
}

// One core a member at a time, so that no group runs ahead of another.
void fill(std::vector<Group>& groups, std::vector<Pool>& pools) {
  while (true) {
    std::optional<size_t> next;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (pool_for(pools, g) == nullptr) continue;
      if (!next || groups[g].per_member() < groups[*next].per_member()) next = g;
    }
    if (!next) return;
    Pool& pool = *pool_for(pools, *next);
    const size_t n = std::min(groups[*next].members.size(), pool.cores.size() - pool.n_taken);
    for (size_t i = 0; i < n; ++i) groups[*next].cores.push_back(pool.cores[pool.n_taken++]);
  }
}

}  // namespace

std::vector<std::vector<size_t>> split_cores(std::span<const CpuSet> cores,
                                             std::span<const CpuSet> wanted) {
  std::vector<Group> groups;
  std::vector<const CpuSet*> of_group;
  for (size_t rank = 0; rank < wanted.size(); ++rank) {
    const auto same = std::find_if(of_group.begin(), of_group.end(),
                                   [&](const CpuSet* set) { return *set == wanted[rank]; });
    const auto g = static_cast<size_t>(same - of_group.begin());
    if (same == of_group.end()) {
      of_group.push_back(&wanted[rank]);
      groups.emplace_back();
    }
    groups[g].members.push_back(rank);
  }
  std::vector<Pool> pools = make_pools(cores, of_group);
  fill(groups, pools);
  std::vector<std::vector<size_t>> given(wanted.size());
  for (Group& group : groups) {
    std::sort(group.cores.begin(), group.cores.end());
    const size_t n = group.members.size();
    size_t at = 0;
    for (size_t i = 0; i < n; ++i) {
      const size_t share = group.cores.size() / n + (i < group.cores.size() % n ? 1 : 0);
      const auto begin = group.cores.begin() + static_cast<ptrdiff_t>(at);
      given[group.members[i]].assign(begin, begin + static_cast<ptrdiff_t>(share));
      at += share;
    }
  }
  return given;
}

}  // namespace weft::parallel
