// What a process is told before MPI starts: CUDA_VISIBLE_DEVICES, the launcher's variables, NVML;
// and what it makes of it.
#include "parallel/binding.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <map>

#include "parallel/nvml_source.h"
#include "parallel/process_binding.h"
#include "parallel/visible_devices.h"
#include "tests/parallel/topology_files.h"
#include "tests/support/error_text.h"

namespace weft::parallel {
namespace {

using Gpus = std::vector<size_t>;

Topology with_uuids() {
  Topology t = made("two-per-bridge");
  for (size_t i = 0; i < t.gpus.size(); ++i) t.gpus[i].uuid = fmt::format("GPU-{}{}", i, "-abcdef");
  t.gpus[7].uuid = "GPU-1x";
  t.gpus[2].mig_uuids = {"MIG-aa", "MIG-bb"};
  return t;
}

VisibleDevices seen(const std::string& value) {
  return visible_devices(with_uuids(), value, "PCI_BUS_ID");
}

TEST(VisibleDevices, EveryForm) {
  EXPECT_EQ(visible_devices(with_uuids(), std::nullopt, "").gpus, (Gpus{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(seen("").gpus, Gpus{});
  EXPECT_EQ(seen("0,1,2,3,4,5,6,7").gpus, (Gpus{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(seen("5").gpus, Gpus{5});
  EXPECT_EQ(seen("7,6,1").gpus, (Gpus{7, 6, 1}));
  EXPECT_EQ(seen(" 2 , 3").gpus, (Gpus{2, 3}));
  EXPECT_EQ(seen("GPU-3-abcdef,GPU-0").gpus, (Gpus{3, 0}));
  EXPECT_EQ(seen("MIG-bb").gpus, Gpus{2});
  EXPECT_EQ(seen("MIG-bb").mig_uuids, std::vector<std::string>{"MIG-bb"});
  EXPECT_EQ(seen("MIG-GPU-2-abcdef/1/0").gpus, Gpus{2});
  EXPECT_EQ(seen("MIG-aa,MIG-bb").gpus, (Gpus{2, 2})) << "two instances of one GPU";
}

TEST(VisibleDevices, EndsWhereCudaEnds) {
  for (const char* value :
       {"1,-1,2", "1,8,2", "1,x", "1,,2", "1,GPU-1", "1,MIG-cc", "1,NoDevFiles"}) {
    const VisibleDevices visible = seen(value);
    EXPECT_EQ(visible.gpus, Gpus{1}) << value;
    EXPECT_EQ(visible.doubts.size(), 1u) << value;
  }
  EXPECT_EQ(seen("-1").gpus, Gpus{});
  const VisibleDevices twice = seen("3,1,3");
  EXPECT_EQ(twice.gpus, Gpus{});
  ASSERT_EQ(twice.doubts.size(), 1u);
  EXPECT_NE(twice.doubts[0].find("twice"), std::string::npos);
}

TEST(VisibleDevices, CountsWhatTheDriverShows) {
  Topology t = with_uuids();
  for (const size_t hidden : {0, 1, 2, 4, 5, 6}) t.gpus[hidden].usable = false;
  EXPECT_EQ(visible_devices(t, "0,1", "").gpus, (Gpus{3, 7}));
  EXPECT_EQ(visible_devices(t, std::nullopt, "").gpus, (Gpus{3, 7}));
}

TEST(VisibleDevices, DoubtsNumbersOverSeveralModels) {
  Topology t = with_uuids();
  t.gpus[0].name = "another";
  EXPECT_EQ(visible_devices(t, "0", "FASTEST_FIRST").doubts.size(), 1u);
  EXPECT_TRUE(visible_devices(t, "0", "PCI_BUS_ID").doubts.empty());
  EXPECT_TRUE(visible_devices(t, "GPU-3", "").doubts.empty());
}

std::optional<LaunchPlace> told(const std::map<std::string, std::string>& variables) {
  return launch_place([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchPlace, OfEachLauncher) {
  const auto open_mpi = told({{"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "8"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NODEID", "0"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->local_rank, 3u);
  EXPECT_EQ(open_mpi->local_size, 8u);
  EXPECT_EQ(open_mpi->launcher, "Open MPI");
  EXPECT_FALSE(open_mpi->asked_unbound);
  const auto unbound = told({{"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                             {"OMPI_MCA_hwloc_base_binding_policy", "none"}});
  EXPECT_TRUE(unbound && unbound->asked_unbound);
  const auto slurm = told(
      {{"SLURM_LOCALID", "2"}, {"SLURM_NODEID", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "8(x3),4"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->local_rank, 2u);
  EXPECT_EQ(slurm->local_size, 4u);
  EXPECT_TRUE(told({{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}}));
  EXPECT_FALSE(told({}));
  EXPECT_FALSE(told({{"PMIX_RANK", "1"}})) << "no number of ranks";
  EXPECT_FALSE(told({{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}));
  EXPECT_FALSE(told({{"OMPI_COMM_WORLD_LOCAL_RANK", "x"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}));
}

TEST(LaunchPlace, SlurmsLists) {
  EXPECT_EQ(slurm_tasks_of("4", 0), 4u);
  EXPECT_EQ(slurm_tasks_of("4", 1), std::nullopt);
  EXPECT_EQ(slurm_tasks_of("4(x2),3,1(x10)", 1), 4u);
  EXPECT_EQ(slurm_tasks_of("4(x2),3,1(x10)", 2), 3u);
  EXPECT_EQ(slurm_tasks_of("4(x2),3,1(x10)", 12), 1u);
  for (const char* bad : {"", "x", "4(x", "4(x)", "4(x2", "(x2)", "4(y2)", "99999999999999999999"})
    EXPECT_EQ(slurm_tasks_of(bad, 0), std::nullopt) << bad;
}

constexpr BindOptions kGpus{true, true, false};
constexpr BindOptions kCpus{true, false, false};

TEST(GuessPlace, EveryRankSeesAll) {
  const Topology t = made("dgx-h100");
  const auto place = guess_place(t, kGpus, {0, 1, 2, 3, 4, 5, 6, 7}, 5, 8);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->gpu, 5u);
  EXPECT_EQ(place->cpus.text(), "70-83,182-195");
}

TEST(GuessPlace, TheLauncherGaveEachItsOwn) {
  const Topology t = made("dgx-h100");
  const auto place = guess_place(t, kGpus, {6}, 1, 8);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->gpu, 6u);
  EXPECT_EQ(place->cpus.text(), "84-97,196-209") << "as if all eight were taken";
  EXPECT_FALSE(guess_place(t, kGpus, {6}, 1, 4)) << "which ones the others have is not known";
  EXPECT_FALSE(guess_place(t, kGpus, {6, 7}, 1, 8));
}

TEST(GuessPlace, OnCpusGpusDontMatter) {
  const Topology t = made("dgx-h100");
  const auto place = guess_place(t, kCpus, {}, 1, 4);
  ASSERT_TRUE(place);
  EXPECT_FALSE(place->gpu);
  EXPECT_EQ(place->cpus.text(), "28-55,140-167");
  EXPECT_EQ(place->memory_nodes, std::vector<int>{0});
}

TEST(SettlePlace, ByWhatEachRankSees) {
  const Topology t = made("dgx-h100");
  const std::vector<Gpus> own = {{4}, {1}, {5}};
  const RankPlace place = settle_place(t, kGpus, own, {}, 2);
  EXPECT_EQ(place.gpu, 5u);
  EXPECT_EQ(place.cpus.text(), "84-111,196-223") << "half of the package: one other rank is there";
  const std::vector<Gpus> all(4, Gpus{0, 1, 2, 3, 4, 5, 6, 7});
  const std::vector<size_t> groups = {2, 2};
  EXPECT_EQ(settle_place(t, kGpus, all, groups, 3).gpu, 3u);
}

TEST(SettlePlace, TwoRanksOnOneGpuAreRefused) {
  const Topology t = made("dgx-h100");
  const std::vector<Gpus> same = {{4}, {4}};
  EXPECT_ERROR(settle_place(t, kGpus, same, {}, 0), "2 ranks for 1 GPU: start no more than 1",
               "--share-gpus");
  const std::vector<Gpus> mixed = {{4}, {4, 5}, {5}};
  EXPECT_ERROR(settle_place(t, kGpus, mixed, {}, 0), "local rank 2", "0000:c3:00.0",
               "--share-gpus");
  const std::vector<Gpus> blind = {{4}, {}};
  EXPECT_ERROR(settle_place(t, kGpus, blind, {}, 0), "local rank 1 sees no GPU");
  BindOptions share = kGpus;
  share.share_gpus = true;
  EXPECT_EQ(settle_place(t, share, mixed, {}, 2).gpu, 5u);
}

TEST(Nvml, IsMissedWithoutFailing) {
  const NvmlAnswer answer = query_nvml("libno-such-library.so.1");
  EXPECT_TRUE(answer.gpus.empty());
  EXPECT_NE(answer.why_none.find("libno-such-library.so.1"), std::string::npos);
}

// A library of the test's own with NVML's functions (fake_nvml.cpp).
TEST(Nvml, NamesGpusAndLinks) {
  const NvmlAnswer answer = query_nvml(WEFT_FAKE_NVML);
  EXPECT_EQ(answer.why_none, "");
  ASSERT_EQ(answer.gpus.size(), 3u);
  EXPECT_EQ(answer.gpus[0].bus_id, "0000:18:00.0");
  EXPECT_EQ(answer.gpus[1].uuid, "GPU-fake-1");
  EXPECT_EQ(answer.gpus[1].memory_bytes, uint64_t{80} << 30);
  EXPECT_EQ(answer.gpus[2].mig_uuids, (std::vector<std::string>{"MIG-fake-0", "MIG-fake-1"}));

  Topology t = made("swapped-numa");
  add_nvml(t, answer);
  finish(t, answer.links);
  ASSERT_EQ(t.gpus.size(), 3u);
  EXPECT_EQ(t.gpus[0].name, "Fake GPU");
  EXPECT_EQ(t.nvlinks[0][1], 6u) << "4 direct, 2 and 3 to switches";
  EXPECT_EQ(t.nvlink_source, "NVML");
  EXPECT_DOUBT(t, "the driver shows GPU 0000:ff:00.0, the PCI bus does not");
}

TEST(Nvml, GpusItHidesAreNotUsable) {
  Topology t = made("two-per-bridge");
  NvmlAnswer answer;
  NvmlGpu shown;
  shown.bus_id = t.gpus[5].bus_id;
  shown.name = "A100";
  answer.gpus.push_back(shown);
  add_nvml(t, answer);
  EXPECT_EQ(visible_devices(t, "0", "").gpus, Gpus{5});
  answer.why_none = "no driver";
  add_nvml(t, answer);
  EXPECT_DOUBT(t, "8 NVIDIA GPUs are on the PCI bus, but no driver");
}

// On whatever machine the tests run: what is bound is what is read back, and nothing is left bound.
TEST(ProcessBinder, BindsAndReadsBack) {
  ProcessBinder binder;
  const CpuSet before = binder.bound();
  ASSERT_FALSE(before.empty());
  EXPECT_TRUE(binder.allowed().contains(before));
  const size_t last = before.cpus().back();
  const CpuSet one = CpuSet::range(last, last + 1);
  const std::vector<std::string> warnings = binder.bind(one);
  if (!warnings.empty()) GTEST_SKIP() << "binding is forbidden here: " << warnings.front();
  EXPECT_EQ(binder.bound(), one);
  cpu_set_t kernel;
  ASSERT_EQ(sched_getaffinity(0, sizeof kernel, &kernel), 0);
  EXPECT_EQ(CPU_COUNT(&kernel), 1);
  EXPECT_TRUE(binder.bind(before).empty());
  EXPECT_EQ(binder.bound(), before);
  const CpuSet beyond = CpuSet::range(8000, 8001);
  EXPECT_FALSE(binder.bind(beyond).empty()) << "CPU 8000 is hardly there";
  EXPECT_EQ(binder.bound(), before);
}

TEST(LiveTopology, HasTheCpusOfThisProcess) {
  const Topology t = live_topology(Devices::yes);
  const ProcessBinder binder;
  EXPECT_EQ(t.cpus, binder.allowed());
  EXPECT_FALSE(t.cores.empty());
  EXPECT_FALSE(t.numa.empty());
  EXPECT_EQ(live_topology(Devices::no).cores, t.cores);
}

}  // namespace
}  // namespace weft::parallel
