// Where ranks sit on made and recorded nodes, as text (tests/data/topologies), and the promises of
// the two parts: whole cores are given once and fairly, GPUs are grouped as cheaply as can be.
// WEFT_WRITE_EXPECTED=1 writes the texts anew, to be read before they are committed.
#include "parallel/placement.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <numeric>
#include <random>

#include "parallel/core_split.h"
#include "parallel/gpu_assignment.h"
#include "parallel/gpu_distance.h"
#include "parallel/visible_devices.h"
#include "tests/parallel/topology_files.h"
#include "tests/support/error_text.h"

namespace weft::parallel {
namespace {

std::vector<size_t> all_gpus(const Topology& t) {
  return visible_devices(t, std::nullopt, "").gpus;
}

PlacementRequest ranks(const Topology& t, size_t n, const std::vector<size_t>& groups = {}) {
  PlacementRequest request;
  request.n_ranks = n;
  request.groups = groups;
  request.visible_gpus = all_gpus(t);
  return request;
}

// Groups of tp ranks each; one of all for 0.
std::string placed(const Topology& t, size_t n, size_t tp) {
  std::vector<size_t> groups;
  for (size_t first = 0; tp > 0 && first < n; first += tp)
    groups.push_back(std::min(tp, n - first));
  std::string text = placement_text(t, place(t, ranks(t, n, groups)));
  for (const std::string& doubt : t.doubts) text += "doubt: " + doubt + "\n";
  return text;
}

void expect_text(const std::string& text, const std::string& name) {
  const std::string path = made_path(name + ".expected");
  if (std::getenv("WEFT_WRITE_EXPECTED") != nullptr) write_file(path, text);
  EXPECT_EQ(text, read_text(path, 1 << 20)) << "expected by " << path;
}

struct Case {
  const char* file;
  size_t n_ranks;
  size_t tp;
};

std::string name_of(const Case& c) {
  return fmt::format("{}.{}{}", c.file, c.n_ranks, c.tp > 0 ? fmt::format("x{}", c.tp) : "");
}

void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

class Made : public testing::TestWithParam<Case> {};

TEST_P(Made, RanksSitAsExpected) {
  const Case& c = GetParam();
  expect_text(placed(made(c.file), c.n_ranks, c.tp), name_of(c));
}

INSTANTIATE_TEST_SUITE_P(Nodes, Made,
                         testing::Values(Case{"dgx-h100", 8, 0}, Case{"dgx-h100", 8, 4},
                                         Case{"dgx-h100", 3, 0}, Case{"two-per-bridge", 8, 2},
                                         Case{"two-per-bridge", 5, 0}, Case{"four-numa", 8, 2},
                                         Case{"four-numa", 1, 0}, Case{"swapped-numa", 2, 1},
                                         Case{"amd-only", 4, 0}, Case{"no-gpu", 1, 0},
                                         Case{"no-gpu", 3, 0}, Case{"no-gpu", 11, 0},
                                         Case{"one-gpu", 1, 0}, Case{"sixteen-gpus", 16, 8},
                                         Case{"sixteen-gpus", 7, 3}, Case{"stripped-cores", 8, 2},
                                         Case{"flat-bus", 4, 2}, Case{"nccl-nvlink-pairs", 4, 2},
                                         Case{"nccl-swapped", 2, 1}));

class Recorded : public testing::TestWithParam<Case> {};

TEST_P(Recorded, RanksSitAsExpected) {
  const Case& c = GetParam();
  const char* shared = std::getenv("WEFT_SHARED");
  const std::string folder = shared != nullptr ? shared : WEFT_SOURCE_DIR "/../shared";
  const std::string path = folder + "/topologies/" + c.file + ".xml";
  if (!is_file(path)) GTEST_SKIP() << path << " is not there (WEFT_SHARED names its folder)";
  const Topology t = parse_topology(read_text(path, 1 << 24), std::string(c.file) + ".xml");
  expect_text(placed(t, c.n_ranks, c.tp), "recorded/" + name_of(c));
}

INSTANTIATE_TEST_SUITE_P(
    Nodes, Recorded,
    testing::Values(Case{"hwloc-aws-p4d.24xl-topo", 8, 2}, Case{"hwloc-aws-p5.48xl-topo", 8, 0},
                    Case{"hwloc-aws-p5en.48xl-topo", 8, 2}, Case{"hwloc-corona-amd-gpus", 4, 0},
                    Case{"hwloc-g4dn-metal-8xT4", 8, 2}, Case{"hwloc-made-dgx-h100", 8, 0},
                    Case{"hwloc3-dgx2", 4, 0}, Case{"hwloc3-dgx2", 16, 0},
                    Case{"nccl-aws-p4d-24xl-topo", 8, 2}, Case{"nccl-azure-ndv4-topo", 8, 2},
                    Case{"nccl-azure-ndv5-topo", 8, 0}));

TEST(Place, RefusesWhatCantBe) {
  const Topology t = made("swapped-numa");
  EXPECT_ERROR(place(t, ranks(t, 3)), "3 ranks for 2 GPUs", "--share-gpus");
  EXPECT_ERROR(place(t, ranks(t, 0)), "0 ranks");
  EXPECT_ERROR(place(t, ranks(t, 2, {3})), "3 ranks in all for 2");
}

TEST(Place, RanksShareGpusWhenAsked) {
  const Topology t = made("swapped-numa");
  PlacementRequest request = ranks(t, 3);
  request.share_gpus = true;
  const Placement placement = place(t, request);
  EXPECT_EQ(placement.ranks[0].gpu, placement.ranks[1].gpu);
  EXPECT_NE(placement.ranks[0].gpu, placement.ranks[2].gpu);
  EXPECT_TRUE((placement.ranks[0].cpus & placement.ranks[1].cpus).empty());
  ASSERT_FALSE(placement.doubts.empty());
  EXPECT_NE(placement.doubts[0].find("3 ranks share 2 GPUs"), std::string::npos);
}

TEST(Place, InvisibleGpusAreNotTaken) {
  const Topology t = made("two-per-bridge");
  PlacementRequest request = ranks(t, 2);
  request.visible_gpus = {0, 6, 7};
  const Placement placement = place(t, request);
  EXPECT_EQ(placement.ranks[0].gpu, 6u) << "6 and 7 are on one switch";
  EXPECT_EQ(placement.ranks[1].gpu, 7u);
  request.visible_gpus.clear();
  EXPECT_FALSE(place(t, request).ranks[0].gpu.has_value());
}

// Threads of one core part; a core alone is shared with the helpers.
TEST(Place, HelpersRunBesideTheStepThread) {
  const Topology t = made("one-gpu");
  const RankPlace whole = place(t, ranks(t, 1)).ranks[0];
  EXPECT_EQ(whole.step_cpus.text(), "0,6");
  EXPECT_EQ(whole.helper_cpus.text(), "1-5,7-11");
  PlacementRequest many = ranks(t, 6);
  many.share_gpus = true;
  const RankPlace narrow = place(t, many).ranks[3];
  EXPECT_EQ(narrow.step_cpus.text(), "3");
  EXPECT_EQ(narrow.helper_cpus.text(), "9");
  many.n_ranks = 7;
  EXPECT_FALSE(place(t, many).ranks[3].binds);
}

std::vector<CpuSet> single_cores(size_t n) {
  std::vector<CpuSet> cores;
  for (size_t i = 0; i < n; ++i) cores.push_back(CpuSet::range(i, i + 1));
  return cores;
}

TEST(SplitCores, NestedMasksShareFairly) {
  const std::vector<CpuSet> wanted = {CpuSet::range(0, 8), CpuSet::range(0, 4),
                                      CpuSet::range(0, 4)};
  const auto given = split_cores(single_cores(8), wanted);
  EXPECT_EQ(given[0], (std::vector<size_t>{4, 5, 6, 7}));
  EXPECT_EQ(given[1], (std::vector<size_t>{0, 1}));
  EXPECT_EQ(given[2], (std::vector<size_t>{2, 3}));
}

TEST(SplitCores, GivesEachCoreOnceNearItsRank) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const size_t n_cores = 1 + random() % 33;
    const size_t n_ranks = 1 + random() % 9;
    std::vector<CpuSet> masks;
    for (size_t i = 0; i < 3; ++i) {
      const size_t begin = random() % n_cores;
      masks.push_back(CpuSet::range(begin, begin + 1 + random() % (n_cores - begin)));
    }
    std::vector<CpuSet> wanted;
    for (size_t i = 0; i < n_ranks; ++i) wanted.push_back(masks[random() % masks.size()]);
    const auto given = split_cores(single_cores(n_cores), wanted);
    std::vector<int> times(n_cores);
    CpuSet wanted_by_any;
    for (size_t rank = 0; rank < n_ranks; ++rank) {
      wanted_by_any = wanted_by_any | wanted[rank];
      for (const size_t core : given[rank]) {
        ++times[core];
        EXPECT_TRUE(wanted[rank].has(core));
      }
      for (size_t other = 0; other < rank; ++other)
        if (wanted[other] == wanted[rank]) {
          EXPECT_LE(given[rank].size(), given[other].size()) << "the first ones get more";
        }
    }
    for (size_t core = 0; core < n_cores; ++core)
      EXPECT_EQ(times[core], wanted_by_any.has(core) ? 1 : 0) << "round " << round;
  }
}

int cost_of(const Topology& t, const std::vector<size_t>& groups, const std::vector<size_t>& gpus) {
  int cost = 0;
  size_t first = 0;
  for (const size_t size : groups) {
    for (size_t a = first; a < first + size; ++a)
      for (size_t b = first; b < a; ++b) cost += pair_cost(t, gpus[a], gpus[b]);
    first += size;
  }
  return cost;
}

// Against every order of the GPUs, on random NVLinks.
TEST(AssignGpus, IsTheCheapest) {
  std::mt19937 random(11);
  const std::vector<std::vector<size_t>> shapes = {{2, 2}, {3, 1}, {2, 3}, {5}, {1, 1, 3}, {2}};
  for (int round = 0; round < 60; ++round) {
    Topology t = made("two-per-bridge");
    t.nvlinks.assign(8, std::vector<unsigned>(8));
    for (size_t a = 0; a < 8; ++a)
      for (size_t b = 0; b < a; ++b) t.nvlinks[a][b] = t.nvlinks[b][a] = random() % 4;
    const std::vector<size_t>& groups = shapes[random() % shapes.size()];
    const size_t n = std::accumulate(groups.begin(), groups.end(), size_t{0});
    std::vector<size_t> gpus = {0, 1, 3, 4, 6, 7};
    const std::vector<size_t> assigned = assign_gpus(t, groups, gpus);
    ASSERT_EQ(assigned.size(), n);
    int cheapest = INT_MAX;
    do cheapest = std::min(cheapest, cost_of(t, groups, gpus));
    while (std::next_permutation(gpus.begin(), gpus.end()));
    EXPECT_EQ(cost_of(t, groups, assigned), cheapest) << "round " << round;
  }
}

TEST(MatchGpus, GivesEachItsOwnWhereThatCanBe) {
  using Seen = std::vector<std::vector<size_t>>;
  using Given = std::vector<size_t>;
  EXPECT_EQ(match_gpus(Seen{{3}, {1}, {0}}), (Given{3, 1, 0}));
  EXPECT_EQ(match_gpus(Seen{{0, 1}, {0}}), (Given{1, 0})) << "the first gives way";
  EXPECT_EQ(match_gpus(Seen{{2}, {2}}), (Given{2, SIZE_MAX}));
  EXPECT_EQ(match_gpus(Seen{{}, {2}}), (Given{SIZE_MAX, 2}));
  EXPECT_EQ(match_gpus(Seen{{0, 1}, {1, 2}, {0}, {2, 3}}), (Given{1, 2, 0, 3}));
}

}  // namespace
}  // namespace weft::parallel
