// The printed command lines, word for word; that they work is shown over two hosts by
// tests/scripts/two_hosts_test.
#include "launch/launch_script.h"

#include <gtest/gtest.h>

#include "tests/support/error_text.h"

namespace weft::launch {
namespace {

// Stages of one layer and `tp` ranks each, on nodes of `per_node` slots.
planner::Plan plan_of(const std::vector<size_t>& tps, size_t per_node) {
  planner::Plan plan;
  plan.cluster = "manual";
  plan.replicas.resize(1);
  size_t rank = 0;
  for (const size_t tp : tps) {
    planner::Stage stage;
    const size_t layer = plan.replicas[0].stages.size();
    stage.layers = {layer, layer + 1};
    stage.tp = tp;
    for (size_t i = 0; i < tp; ++i, ++rank)
      stage.slots.push_back({rank / per_node, rank % per_node});
    plan.replicas[0].stages.push_back(stage);
  }
  return plan;
}

LaunchRequest request_of(Launcher launcher) {
  LaunchRequest request;
  request.launcher = launcher;
  request.command = {"/opt/weft", "run", "--prompt", "it's x", "--plan", "/p.yaml"};
  return request;
}

// One line, for comparison.
std::string flat(std::string text) {
  for (size_t at; (at = text.find(" \\\n   ")) != std::string::npos;) text.replace(at, 6, "");
  return text;
}

TEST(LaunchScript, MpirunOverAHostfile) {
  LaunchRequest request = request_of(Launcher::mpirun);
  request.hostfile = "hosts";
  request.hosts = {{"a", 8}, {"b", 2}, {"c", 4}};
  EXPECT_EQ(
      flat(launch_text(plan_of({2, 2}, 2), request)),
      "mpirun -n 4 --host a:2,b:2 --map-by slot --bind-to none --mca oob_tcp_keepalive_time 2 "
      "--mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 /opt/weft run "
      "--prompt 'it'\\''s x' --plan /p.yaml\n");
}

TEST(LaunchScript, MpirunOfOpenMpi5) {
  LaunchRequest request = request_of(Launcher::mpirun);
  request.mpi_version = 5;
  request.nics = {"eth0"};
  request.nodes = 2;
  EXPECT_EQ(
      flat(launch_text(plan_of({2, 2}, 8), request)),
      "mpirun -n 4 --map-by ppr:2:node --bind-to none --prtemca oob_tcp_keepalive_time 2 "
      "--prtemca oob_tcp_keepalive_intvl 1 --prtemca oob_tcp_keepalive_probes 3 --prtemca "
      "prte_if_include eth0 --mca btl_tcp_if_include eth0 --mca pml ob1 --mca btl self,sm,tcp "
      "-x NCCL_SOCKET_IFNAME==eth0 /opt/weft run --prompt 'it'\\''s x' --plan /p.yaml\n");
}

TEST(LaunchScript, MpirunOnOneHostAlone) {
  const std::string text = flat(launch_text(plan_of({3}, 8), request_of(Launcher::mpirun)));
  EXPECT_EQ(text.rfind("mpirun -n 3 --host localhost:3 ", 0), 0u) << text;
}

TEST(LaunchScript, Srun) {
  LaunchRequest request = request_of(Launcher::srun);
  request.gpus_per_node = 8;
  request.cores = 12;
  EXPECT_EQ(flat(launch_text(plan_of({8, 8}, 8), request)),
            "srun --mpi=pmix -K1 --exclusive -N2 --ntasks-per-node=8 -c12 --gpus-per-node=8 "
            "--cpu-bind=none --mem-bind=none --gpu-bind=none /opt/weft run --prompt 'it'\\''s x' "
            "--plan /p.yaml\n");
  request.nics = {"10.0.0.0/24"};
  request.cards = {"mlx5_0", "mlx5_1"};
  const std::string text = flat(launch_text(plan_of({8, 8}, 8), request));
  EXPECT_EQ(text.rfind("env NCCL_IB_HCA==mlx5_0,mlx5_1 UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1 "
                       "OMPI_MCA_btl_tcp_if_include=10.0.0.0/24 srun ",
                       0),
            0u)
      << text;
}

TEST(LaunchScript, SbatchOfReplicas) {
  LaunchRequest request = request_of(Launcher::sbatch);
  request.time = "1:00:00";
  request.partition = "long";
  planner::Plan plan = plan_of({2, 2}, 2);
  plan.replicas[0].count = 3;
  const std::string text = launch_text(plan, request);
  for (const char* line :
       {"#!/bin/bash\n", "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=2\n",
        "#SBATCH --time=1:00:00\n", "#SBATCH --partition=long\n", "#SBATCH --array=0-2 ",
        "#SBATCH --signal=TERM@60\n", "\nexec srun --mpi=pmix -K1 "})
    EXPECT_NE(text.find(line), std::string::npos) << line << "is not in:\n" << text;
  EXPECT_EQ(text.find("gpus"), std::string::npos) << text;
}

TEST(LaunchScript, RefusesWhatCantBe) {
  LaunchRequest request = request_of(Launcher::mpirun);
  request.hostfile = "hosts";
  request.hosts = {{"a", 2}, {"b", 1}};
  EXPECT_ERROR(launch_text(plan_of({2, 2}, 2), request), "hosts has 3 slots on 2 hosts",
               "needs 4 ranks on 2");
  request.hosts = {{"a", 1}, {"b", 7}};
  EXPECT_ERROR(launch_text(plan_of({2, 2}, 2), request), "host a has 1 slots", "2 ranks");
  request.hosts = {{"a", 40}};
  EXPECT_ERROR(launch_text(plan_of({2, 2}, 2), request), "40 slots on 1 hosts", "on 2");
  LaunchRequest srun = request_of(Launcher::srun);
  EXPECT_ERROR(launch_text(plan_of({2, 1}, 2), srun), "2, 1 ranks", "equally many");
  srun.nodes = 3;
  EXPECT_ERROR(launch_text(plan_of({2, 2}, 2), srun), "4 ranks", "3 nodes");
  planner::Plan searched = plan_of({2, 2}, 2);
  searched.cluster = "h100-2x8";
  srun.nodes = 4;
  EXPECT_ERROR(launch_text(searched, srun), "2 nodes of cluster h100-2x8, not 4");
  planner::Plan folded = plan_of({1, 1, 1}, 1);
  folded.replicas[0].stages[2].slots[0].node = 0;
  EXPECT_ERROR(launch_text(folded, srun), "comes back to node 0");
}

TEST(LaunchScript, QuotesForAShell) {
  EXPECT_EQ(shell_word("a-b_c=/d:1,2@x%+"), "a-b_c=/d:1,2@x%+");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("$HOME `x` \"y\""), "'$HOME `x` \"y\"'");
  EXPECT_EQ(shell_word("'"), "''\\'''");
  EXPECT_EQ(shell_word("~"), "'~'");
}

}  // namespace
}  // namespace weft::launch
