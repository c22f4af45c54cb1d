// Each rank at its place: before MPI starts, from the launcher's word, because MPI starts threads
// and maps memory; then again, where MPI knows better.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/cpu_set.h"
#include "parallel/device_mesh.h"
#include "parallel/launch_place.h"
#include "parallel/mpi_session.h"
#include "parallel/placement.h"
#include "parallel/topology.h"

namespace weft::parallel {

struct BindOptions {
  bool bind = true;       // false: nothing is looked at or changed
  bool use_gpus = false;  // ranks drive GPUs; else they compute on CPUs
  bool share_gpus = false;
};

// One rank's place in the making.
struct Binding {
  BindOptions options;
  Topology topology;                 // of this host
  std::vector<size_t> visible_gpus;  // to this rank, indices into topology.gpus
  CpuSet allowed;                    // by the cgroup
  CpuSet before;                     // CPUs of the process when it started
  std::optional<LaunchPlace> launch;
  std::optional<RankPlace> place;     // none: not settled, or nothing to do
  bool kept = false;                  // `before` was the choice of a launcher or user, and stays
  std::vector<std::string> warnings;  // sentences, for the log

  bool looked() const { return !allowed.empty(); }
};

// Before MPI_Init, CUDA and NCCL. Sets CUDA_DEVICE_ORDER=PCI_BUS_ID where ranks use GPUs. Rank on
// CPUs: its share of whole cores, unless a launcher or user has bound the process already or asked
// that it not be, or there are more ranks than cores. Rank with a GPU: cores near that GPU,
// whatever the launcher bound it to. Never throws for want of rights or of a machine that can be
// read: that is a warning.
Binding bind_early(const BindOptions& options);

// After MPI_Init, a collective of all ranks: places the ranks of each host by what MPI_Comm_split_
// type found, and binds anew, every thread, where that differs from bind_early's guess. groups: the
// sizes of this host's tensor-parallel groups (local_groups), empty: one of all. Throws AgreedError
// on all ranks where a host has more ranks than GPUs and they may not be shared.
void verify_binding(const MpiSession& session, Binding& binding, std::span<const size_t> groups);

// Sizes of the tensor-parallel groups, or the parts of them, that are on the host of this rank, in
// the order of its ranks.
std::vector<size_t> local_groups(const DeviceMesh& mesh, const MpiSession& session);

// The place of `rank` of `size` on a host of which every rank has the same view: pure, for tests.
// None where the launcher's word doesn't suffice (a launcher gave each rank GPUs of its own and
// these are not all of the host's).
std::optional<RankPlace> guess_place(const Topology& topology, const BindOptions& options,
                                     const std::vector<size_t>& visible_gpus, size_t rank,
                                     size_t size);

// The place of local rank `rank`, once it is known which GPUs each rank of the host sees. Throws
// Error where they can't all have one.
RankPlace settle_place(const Topology& topology, const BindOptions& options,
                       std::span<const std::vector<size_t>> visible_by_rank,
                       std::span<const size_t> groups, size_t rank);

}  // namespace weft::parallel
