// Topology files. H: hwloc's XML. N: NCCL's. Where a node was read, ranks can be placed on it: on
// GPUs of their own, on whole cores that nobody else has.
#include <set>

#include "parallel/placement.h"
#include "parallel/topology_sources.h"
#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

using parallel::CpuSet;
using parallel::Topology;

void expect_sound(const Topology& t) {
  FUZZ_EXPECT(!t.cpus.empty() && !t.cores.empty());
  for (const CpuSet& core : t.cores) FUZZ_EXPECT(!core.empty() && t.cpus.contains(core));
  for (const parallel::Gpu& gpu : t.gpus) FUZZ_EXPECT(gpu.root < t.roots.size());
  FUZZ_EXPECT(t.nvlinks.empty() || t.nvlinks.size() == t.gpus.size());
}

bool cores_overlap(const Topology& t) {
  CpuSet seen;
  for (const CpuSet& core : t.cores) {
    if (core.intersects(seen)) return true;
    seen = seen | core;
  }
  return false;
}

void expect_placed(const Topology& t, size_t n_ranks) {
  parallel::PlacementRequest request;
  request.n_ranks = n_ranks;
  for (size_t gpu = 0; gpu < t.gpus.size(); ++gpu) request.visible_gpus.push_back(gpu);
  request.share_gpus = n_ranks > t.gpus.size();
  const parallel::Placement placement = place(t, request);
  FUZZ_EXPECT(placement.ranks.size() == n_ranks);
  FUZZ_EXPECT(!placement_text(t, placement).empty());
  std::set<size_t> gpus;
  CpuSet taken;
  const bool alone = !cores_overlap(t);  // a file may give a thread to two cores
  for (const parallel::RankPlace& rank : placement.ranks) {
    FUZZ_EXPECT(!rank.cpus.empty() && t.cpus.contains(rank.cpus));
    FUZZ_EXPECT(!rank.step_cpus.empty() && !rank.helper_cpus.empty());
    if (rank.gpu && !request.share_gpus) FUZZ_EXPECT(gpus.insert(*rank.gpu).second);
    if (!rank.binds) continue;
    FUZZ_EXPECT(!alone || !rank.cpus.intersects(taken));
    taken = taken | rank.cpus;
  }
}

void check(const Topology& topology) {
  expect_sound(topology);
  for (const size_t n_ranks : {1, 2, 3, 8}) expect_placed(topology, n_ranks);
}

void fuzz_hwloc(std::string_view text) { check(parallel::parse_hwloc_xml(text, "fuzz")); }
void fuzz_nccl(std::string_view text) { check(parallel::parse_nccl_xml(text, "fuzz")); }

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  using namespace weft::fuzz;
  return run_kind({{'H', fuzz_hwloc}, {'N', fuzz_nccl}}, data, n);
}
