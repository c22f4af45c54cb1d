// Groups and edges of every mesh that the ranks allow pass what is known, and are timed.
#include "parallel/preflight_messages.h"

#include <gtest/gtest.h>

#include "tests/support/mpi_test.h"

namespace weft::parallel {
namespace {

DeviceMesh mesh_of(const std::vector<int>& tps) {
  DeviceMesh mesh;
  int first = 0;
  for (const int tp : tps) {
    mesh.stages.push_back({first, tp});
    first += tp;
  }
  return mesh;
}

void prove(const DeviceMesh& mesh, size_t n_edges) {
  const MpiSession& session = testing::session();
  kernels::ThreadPool pool(1);
  kernels::Stream stream(pool);
  PreflightMessages messages(session, mesh, stream, std::nullopt);
  messages.check_groups();
  messages.check_edges();
  const std::vector<EdgeRate> edges = messages.time_edges();
  ASSERT_EQ(edges.size(), n_edges);
  for (const EdgeRate& edge : edges) {
    EXPECT_EQ(mesh.stage_of(edge.from) + 1, mesh.stage_of(edge.to));
    EXPECT_GT(edge.gbps, 0);
    EXPECT_GT(edge.latency_us, 0);
  }
  messages.close();
}

TEST(PreflightMessages, OneStage) { prove(mesh_of({testing::session().size()}), 0); }

TEST(PreflightMessages, AStageARank) {
  const int n = testing::session().size();
  prove(mesh_of(std::vector<int>(static_cast<size_t>(n), 1)), static_cast<size_t>(n - 1));
}

TEST(PreflightMessages, StagesOfDifferentWidth) {
  const int n = testing::session().size();
  if (n < 3) GTEST_SKIP() << "two stages of different width take three ranks";
  prove(mesh_of({1, n - 1}), static_cast<size_t>(n - 1));
  prove(mesh_of({n - 1, 1}), 1);
}

}  // namespace
}  // namespace weft::parallel
