// NVLinks by pair of GPUs: direct ones as either end tells them, and through switches, which join
// all GPUs of a host that have links to one.
#include <algorithm>
#include <map>

#include "parallel/topology.h"

namespace weft::parallel {

std::vector<std::vector<unsigned>> nvlink_matrix(const Topology& t,
                                                 std::span<const NvLinkEnd> links) {
  const size_t n = t.gpus.size();
  std::map<std::string_view, size_t> gpu_at;
  for (size_t i = 0; i < n; ++i) gpu_at[t.gpus[i].bus_id] = i;
  std::vector<std::vector<unsigned>> matrix(n, std::vector<unsigned>(n));
  std::vector<unsigned> to_switches(n);
  bool any = false;
  for (const NvLinkEnd& link : links) {
    const auto from = gpu_at.find(link.gpu);
    if (from == gpu_at.end() || link.n_links == 0 || link.to == link.gpu) continue;
    any = true;
    const auto to = gpu_at.find(link.to);
    if (to == gpu_at.end()) {
      to_switches[from->second] += link.n_links;
      continue;
    }
    unsigned& known =
        matrix[std::min(from->second, to->second)][std::max(from->second, to->second)];
    known = std::max(known, link.n_links);  // both ends tell it
  }
  if (!any) return {};
  for (size_t i = 0; i < n; ++i)
    for (size_t k = i + 1; k < n; ++k) {
      matrix[i][k] += std::min(to_switches[i], to_switches[k]);
      matrix[k][i] = matrix[i][k];
    }
  return matrix;
}

}  // namespace weft::parallel
