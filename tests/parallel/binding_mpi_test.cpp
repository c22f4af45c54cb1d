// Binding under a real launcher: ranks of one host get cores of their own where there are enough,
// and stay where they were where there are not.
#include "parallel/binding.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "parallel/gather.h"
#include "parallel/process_binding.h"
#include "tests/support/mpi_test.h"

namespace weft::parallel {
namespace {

cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

// A launcher's wrong word is found out: this rank believes that it is alone.
TEST(VerifyBinding, MpiKnowsBetter) {
  const MpiSession& session = testing::session();
  const cpu_set_t before = affinity();
  Binding binding = bind_early({});
  if (!binding.looked()) GTEST_SKIP() << "this machine can't be looked at";
  binding.launch = LaunchPlace{0, 1, "a launcher", false};
  binding.place = guess_place(binding.topology, binding.options, {}, 0, 1);
  verify_binding(session, binding, {});
  ASSERT_TRUE(binding.place);
  const bool alone = session.node_size() == 1;
  EXPECT_EQ(std::any_of(binding.warnings.begin(), binding.warnings.end(),
                        [](const std::string& text) {
                          return text.find("said local rank 0 of 1") != std::string::npos;
                        }),
            !alone);
  const auto size = static_cast<size_t>(session.node_size());
  EXPECT_EQ(binding.place->binds, size <= binding.topology.cores.size());
  // Ranks of a host that bind have CPUs of their own, unless a launcher had chosen for them.
  const std::vector<cpu_set_t> all = gather(session, affinity());
  const bool chosen = binding.before != binding.allowed;
  for (int a = 0; a < session.size(); ++a)
    for (int b = 0; b < a; ++b) {
      cpu_set_t common;
      CPU_AND(&common, &all[static_cast<size_t>(a)], &all[static_cast<size_t>(b)]);
      if (binding.place->binds && !chosen) {
        EXPECT_EQ(CPU_COUNT(&common), 0) << a << " and " << b;
      }
    }
  sched_setaffinity(0, sizeof before, &before);
}

// Threads that ran before are bound too.
TEST(VerifyBinding, BindsEveryThread) {
  ProcessBinder binder;
  const CpuSet before = binder.bound();
  std::atomic<bool> stop{false};
  std::atomic<int> on_cpus{0};
  std::thread thread([&] {
    while (!stop) {
      const cpu_set_t set = affinity();
      on_cpus = CPU_COUNT(&set);
      std::this_thread::yield();
    }
  });
  const size_t first = before.cpus().front();
  const std::vector<std::string> warnings = binder.bind(CpuSet::range(first, first + 1));
  on_cpus = 0;
  while (on_cpus == 0) std::this_thread::yield();
  if (warnings.empty()) {
    EXPECT_EQ(on_cpus, 1);
  }
  stop = true;
  thread.join();
  EXPECT_TRUE(binder.bind(before).empty());
}

TEST(VerifyBinding, DoesNothingWhereItIsNotWanted) {
  const cpu_set_t before = affinity();
  Binding binding = bind_early({.bind = false});
  EXPECT_FALSE(binding.looked());
  verify_binding(testing::session(), binding, {});
  EXPECT_FALSE(binding.place);
  const cpu_set_t after = affinity();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(LocalGroups, AreTheStagesOfThisHost) {
  const MpiSession& session = testing::session();
  DeviceMesh mesh;
  mesh.stages = {{0, session.size()}};
  if (session.node_size() == session.size()) {
    EXPECT_EQ(local_groups(mesh, session),
              std::vector<size_t>{static_cast<size_t>(session.size())});
  }
  mesh.stages.clear();
  for (int rank = 0; rank < session.size(); ++rank) mesh.stages.push_back({rank, 1});
  EXPECT_EQ(local_groups(mesh, session),
            std::vector<size_t>(static_cast<size_t>(session.node_size()), 1));
}

}  // namespace
}  // namespace weft::parallel
