#include "launch/gpu_pick.h"

#include <fmt/ranges.h>

#include "kernels/gpu_needs.h"
#include "parallel/topology.h"
#include "runtime/base/error.h"

namespace weft::launch {
namespace {

size_t index_of(const kernels::GpuQuery& query, const RankOnHost& rank, bool shares) {
  if (!rank.bus_id.empty())
    for (size_t i = 0; i < query.gpus.size(); ++i)
      if (parallel::normal_bus_id(query.gpus[i].pci_bus_id) == rank.bus_id) return i;
  const size_t n_gpus = query.gpus.size();
  const char* plural = n_gpus == 1 ? "" : "s";
  if (rank.size > n_gpus && !shares)
    throw input_error(
        "{} ranks for {} GPU{}: start {} rank{} on this host, or let ranks share a GPU with "
        "--share-gpus",
        rank.size, n_gpus, plural, n_gpus, plural);
  return rank.rank % query.gpus.size();
}

}  // namespace

size_t pick_gpu(const kernels::GpuQuery& query, std::span<const std::string> built,
                const RankOnHost& rank, bool shares) {
  if (query.gpus.empty()) throw input_error("{}", query.why_none);
  const size_t index = index_of(query, rank, shares);
  const kernels::GpuInfo& gpu = query.gpus[index];
  if (kernels::runs_on(built, gpu.compute_major, gpu.compute_minor)) return index;
  throw input_error(
      "GPU {} ({}) has compute capability {}.{}, and weft was built for {}: run it on such a GPU, "
      "or with --backend cpu",
      index, gpu.name, gpu.compute_major, gpu.compute_minor,
      built.empty() ? "none" : fmt::format("{}", fmt::join(built, ", ")));
}

}  // namespace weft::launch
