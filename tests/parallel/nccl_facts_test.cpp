// What a rank says of NCCL, from a library that only pretends to be it and variables made up.
#include "parallel/nccl_facts.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "parallel/nccl_hints.h"
#include "parallel/rank_facts.h"
#include "tests/parallel/fake_nccl.h"

namespace weft::parallel {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// The problems of a host with these networks, in one text.
std::string problems_of(const Variables& variables, const HostNetworks& networks,
                        bool several_hosts = true) {
  std::string text;
  for (const std::string& one :
       nccl_name_problems(environment_of(variables), networks, several_hosts))
    text += one + "\n";
  return text;
}

const HostNetworks kTwoCards = {{"eth0", "eth1", "lo"}, {"mlx5_0", "mlx5_10"}};
const HostNetworks kNoCards = {{"eth0", "lo"}, {}};

FakeNccl& fake_nccl() {
  void* library = dlopen(WEFT_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  EXPECT_NE(library, nullptr) << dlerror();
  auto& fake = *static_cast<FakeNccl*>(dlsym(library, "fake_nccl"));
  fake = {};
  return fake;
}

TEST(NcclFacts, VersionIsTheOneOfTheLibraryThatWouldBeLoaded) {
  FakeNccl& fake = fake_nccl();
  EXPECT_EQ(nccl_version_here(WEFT_FAKE_NCCL), "2.28.9");
  fake.version = 23003;
  EXPECT_EQ(nccl_version_here(WEFT_FAKE_NCCL), "2.30.3");
  fake.version = 22703;
  EXPECT_NE(nccl_version_here(WEFT_FAKE_NCCL).find("weft needs 2.28.0 or newer"),
            std::string::npos);
  fake = {};
  EXPECT_NE(nccl_version_here("libno_such_nccl.so.2").find("NCCL cannot be loaded"),
            std::string::npos);
}

TEST(NcclFacts, SettingsAreThoseThatAllNeedAlike) {
  EXPECT_EQ(nccl_settings(environment_of({})), "");
  const Variables variables = {{"NCCL_PROTO", "LL"},
                               {"NCCL_NET", "Socket"},
                               {"NCCL_DEBUG", "INFO"},
                               {"NCCL_SOCKET_IFNAME", "eth0"}};
  EXPECT_EQ(nccl_settings(environment_of(variables)), "NCCL_NET=Socket NCCL_PROTO=LL");
}

TEST(NcclFacts, NamesThatAreThere) {
  for (const char* names :
       {"eth0", "=eth1", "eth", "no,eth1", "^lo", "^=eth0", "^docker,lo", "lo", "eth0:0", "", "="})
    EXPECT_EQ(problems_of({{"NCCL_SOCKET_IFNAME", names}}, kTwoCards), "") << names;
  for (const char* names : {"mlx5", "=mlx5_10", "mlx5_0:1", "=mlx5_0:1,mlx5_9:1", "^mlx5_0:1,mlx4"})
    EXPECT_EQ(problems_of({{"NCCL_IB_HCA", names}}, kTwoCards), "") << names;
  EXPECT_EQ(problems_of({}, {}), "");
}

TEST(NcclFacts, NamesThatAreNot) {
  EXPECT_EQ(problems_of({{"NCCL_SOCKET_IFNAME", "eht0"}}, kNoCards),
            "NCCL_SOCKET_IFNAME=eht0 names no interface of this host that is up with an "
            "address (did you mean \"eth0\"?); it has eth0, lo\n");
  EXPECT_NE(problems_of({{"NCCL_SOCKET_IFNAME", "=eth"}}, kNoCards), "") << "no name is whole";
  EXPECT_NE(problems_of({{"NCCL_SOCKET_IFNAME", "^eth,lo"}}, kNoCards).find("leaves no interface"),
            std::string::npos);
  EXPECT_NE(problems_of({{"NCCL_SOCKET_IFNAME", "eno1"}}, kNoCards, false), "")
      << "ranks of one host meet through it too";
  EXPECT_NE(problems_of({{"NCCL_IB_HCA", "=mlx5_1"}}, kTwoCards).find("mlx5_0, mlx5_10"),
            std::string::npos);
  EXPECT_NE(problems_of({{"NCCL_IB_HCA", "mlx5_0"}}, kNoCards).find("it has none"),
            std::string::npos);
  EXPECT_EQ(problems_of({{"NCCL_IB_HCA", "mlx5_0"}}, kNoCards, false), "");
  EXPECT_EQ(problems_of({{"NCCL_IB_HCA", "mlx5_0"}, {"NCCL_IB_DISABLE", "1"}}, kNoCards), "");
  EXPECT_EQ(problems_of({{"NCCL_IB_HCA", "mlx5_0"}, {"NCCL_NET", "Socket"}}, kNoCards), "");
  EXPECT_NE(problems_of({{"NCCL_NET", "ib"}}, kNoCards, false).find("no RDMA device"),
            std::string::npos);
}

TEST(NcclFacts, OfThisHostKnowTheLoopback) {
  const std::vector<std::string> names = host_networks().interfaces;
  EXPECT_NE(std::find(names.begin(), names.end(), "lo"), names.end());
}

TEST(NcclFacts, InterfacesToChooseAreUp) {
  const std::vector<std::string> up = interfaces_up();
  for (const std::string& name : interfaces_to_choose())
    EXPECT_NE(std::find(up.begin(), up.end(), name), up.end()) << name;
}

class FourRanks : public testing::Test {
 protected:
  FourRanks() : all_(4) {
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      all_[rank].node = static_cast<int32_t>(rank / 2);
      all_[rank].host.set(rank < 2 ? "a" : "b");
      all_[rank].nccl.set("2.28.9");
    }
  }
  std::vector<RankFacts> all_;
};

TEST_F(FourRanks, WithTheSameNcclHaveNoProblem) { EXPECT_TRUE(nccl_problems(all_).empty()); }

TEST_F(FourRanks, WithAnotherVersionOnAHost) {
  FakeNccl& fake = fake_nccl();
  fake.version = 23003;
  for (const size_t rank : {size_t{2}, size_t{3}})
    all_[rank].nccl.set(nccl_version_here(WEFT_FAKE_NCCL));
  fake = {};
  const auto problems = nccl_problems(all_);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0],
            "not all ranks have the same NCCL: ranks 0-1 (host a): 2.28.9; ranks 2-3 (host b): "
            "2.30.3");
}

TEST_F(FourRanks, WithoutNcclOnOne) {
  all_[3].nccl.set(nccl_version_here("libno_such_nccl.so.2"));
  const auto problems = nccl_problems(all_);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("rank 3 (host b): NCCL cannot be loaded"), std::string::npos)
      << problems[0];
  all_[0].nccl.set("");  // on the CPU: then all are
  EXPECT_TRUE(nccl_problems(all_).empty());
}

TEST_F(FourRanks, WithOtherSettingsOnOne) {
  all_[1].nccl_settings.set("NCCL_PROTO=LL");
  const auto problems = nccl_problems(all_);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0],
            "not all ranks have the same variables of NCCL: rank 1 (host a): NCCL_PROTO=LL; ranks "
            "0, 2-3 (hosts a, b): none set");
}

TEST_F(FourRanks, SayWhatAHostHasNotOnce) {
  for (const size_t rank : {size_t{2}, size_t{3}})
    all_[rank].nccl_problem.set("NCCL_IB_HCA=x names none");
  const auto problems = nccl_problems(all_);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0], "host b: NCCL_IB_HCA=x names none (ranks 2-3)");
}

}  // namespace
}  // namespace weft::parallel
