// The full part of preflight that needs messages: every group of a plan is set up, passes content
// that is known beforehand, and every edge between stages is timed.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "parallel/communicator.h"
#include "parallel/device_mesh.h"
#include "parallel/gpu_communicator.h"
#include "parallel/mpi_session.h"

namespace weft::parallel {

// What was measured from rank `from` to rank `to`, alone on the way.
struct EdgeRate {
  int from = 0;
  int to = 0;
  bool same_host = true;
  double latency_us = 0;  // of a small message, one way
  double gbps = 0;        // GB/s (10^9 bytes a second) of large ones
};

// Ranks on GPUs, and how they are to talk.
struct PreflightOnGpu {
  GpuTransport transport = GpuTransport::automatic;
  bool shares_gpu = false;  // this rank has its GPU together with others
};

class PreflightMessages {
 public:
  // Sets up this rank's tensor-parallel group and the group of all edges, as a run does: a
  // collective of all ranks. With `gpu` the stream has a GPU's beside it, and what passes lies in
  // the GPU's memory.
  PreflightMessages(const MpiSession& session, const DeviceMesh& mesh, kernels::Stream& stream,
                    const std::optional<PreflightOnGpu>& gpu);

  // All ranks call these in this order. Throws Error, on the rank that sees it, where content that
  // arrived is not what was sent; nobody is left waiting by that.
  void check_groups();
  void check_edges();
  // By edge, in the mesh's order, on every rank.
  std::vector<EdgeRate> time_edges();
  void close();

 private:
  std::unique_ptr<Communicator> communicator(std::span<const int> ranks, int tag, size_t sum_bytes,
                                             const std::optional<PreflightOnGpu>& gpu) const;
  void time_edge(EdgeRate& edge);

  const MpiSession& session_;
  DeviceMesh mesh_;
  kernels::Stream& stream_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<Communicator> edges_;
};

}  // namespace weft::parallel
