// What must hold of all ranks together, on facts made up.
#include "parallel/rank_facts.h"

#include <gtest/gtest.h>

#include <map>

#include "parallel/setup_steps.h"
#include "parallel/slurm_step.h"

namespace weft::parallel {
namespace {

std::vector<RankFacts> four_ranks_on_two_hosts() {
  std::vector<RankFacts> all(4);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    RankFacts& facts = all[rank];
    facts.node = static_cast<int32_t>(rank / 2);
    facts.host.set(rank < 2 ? "a" : "b");
    facts.weft.set("1.0 build 12ab");
    facts.mpi.set("Open MPI v4.1.4");
    facts.gpu.set(rank % 2 == 0 ? "0000:1b:00.0" : "0000:43:00.0");
    facts.gpu_uuid.set(std::string("GPU-") + static_cast<char>('0' + rank));
    facts.host_free = 100;
    facts.needs = 50;
  }
  return all;
}

TEST(RankFacts, AllIsWell) {
  const auto all = four_ranks_on_two_hosts();
  EXPECT_TRUE(version_problems(all).empty());
  EXPECT_TRUE(device_problems(all).empty());
  EXPECT_TRUE(memory_problems(all).empty());
}

TEST(RankFacts, AnotherBuildIsNamedWithItsRanks) {
  auto all = four_ranks_on_two_hosts();
  all[2].weft.set("1.0 build 99ff");
  all[3].weft.set("1.0 build 99ff");
  const auto problems = version_problems(all);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0],
            "not all ranks have the same weft: ranks 0-1 (host a): 1.0 build 12ab; ranks 2-3 (host "
            "b): 1.0 build 99ff");
  all[1].mpi.set("");
  EXPECT_EQ(version_problems(all).size(), 2u);
}

TEST(RankFacts, OneGpuARank) {
  auto all = four_ranks_on_two_hosts();
  all[3].gpu_uuid = all[2].gpu_uuid;
  all[3].gpu = all[2].gpu;
  auto problems = device_problems(all);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].rfind("ranks 2-3 are all on GPU 0000:1b:00.0 of host b", 0), 0u)
      << problems[0];
  for (RankFacts& facts : all) facts.share_gpus = true;
  EXPECT_TRUE(device_problems(all).empty());
  // Without UUIDs the bus id counts, on its host alone.
  all = four_ranks_on_two_hosts();
  for (RankFacts& facts : all) facts.gpu_uuid.set("");
  EXPECT_TRUE(device_problems(all).empty());
  all[1].gpu = all[0].gpu;
  EXPECT_EQ(device_problems(all).size(), 1u);
  for (RankFacts& facts : all) facts.gpu.set("");  // on CPUs
  EXPECT_TRUE(device_problems(all).empty());
}

TEST(RankFacts, MemoryOfEachHost) {
  auto all = four_ranks_on_two_hosts();
  all[1].needs = 51;
  const auto problems = memory_problems(all);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].rfind("host a: ranks 0-1 need 101 B together and 100 B is free", 0), 0u)
      << problems[0];
}

TEST(RankFacts, TwoHostsOfOneNameAreTwo) {
  auto all = four_ranks_on_two_hosts();
  for (RankFacts& facts : all) facts.host.set("node");
  for (RankFacts& facts : all) facts.gpu_uuid.set("");
  EXPECT_TRUE(device_problems(all).empty());
  EXPECT_TRUE(memory_problems(all).empty());
}

TEST(RankFacts, Map) {
  auto all = four_ranks_on_two_hosts();
  all.resize(2);
  all[0].root.set("0000:17");
  all[0].numa.set("0");
  all[0].cpus.set("0-11");
  all[0].card.set("mlx5_0");
  all[1].gpu.set("");
  EXPECT_EQ(places_text(all),
            "rank  host  device            root     NUMA  CPUs       card\n"
            "0     a     GPU 0000:1b:00.0  0000:17  0     0-11       mlx5_0\n"
            "1     a     CPU               -        -     not bound  -\n");
}

TEST(RankFacts, ThisMachineHasMemory) { EXPECT_GT(free_memory_bytes(), uint64_t{1} << 20); }

TEST(SetupSteps, ActivitiesAreOneByte) {
  EXPECT_EQ(activity_text(activity_of(SetupStep::memory, false)), "in preflight step \"memory\"");
  EXPECT_EQ(activity_text(activity_of(SetupStep::memory, true)),
            "done with preflight step \"memory\", waits for others");
  EXPECT_FALSE(activity_text(0x7f).empty());  // from another version
  EXPECT_EQ(setup_step_name(SetupStep::bandwidth), "bandwidth");
}

TEST(SlurmStep, IsSrunsOwnAlone) {
  std::map<std::string, std::string> variables = {
      {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}, {"SLURM_LOCALID", "0"}};
  const Environment environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  EXPECT_EQ(slurm_step(environment), "12.3");
  variables["SLURM_STEP_ID"] = "3; reboot";
  EXPECT_EQ(slurm_step(environment), std::nullopt);
  variables["SLURM_STEP_ID"] = "3";
  variables["OMPI_COMM_WORLD_RANK"] = "0";  // mpirun in an allocation
  EXPECT_EQ(slurm_step(environment), std::nullopt);
  variables.clear();
  EXPECT_EQ(slurm_step(environment), std::nullopt);
}

}  // namespace
}  // namespace weft::parallel
