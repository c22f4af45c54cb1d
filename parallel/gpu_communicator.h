// Which communicator a group of GPUs gets: NCCL where every rank has a GPU of its own, messages
// staged through host memory where that can't be; before either, peer memory for short sums.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "parallel/communicator.h"
#include "parallel/mpi_session.h"
#include "parallel/staged_communicator.h"

namespace weft::parallel {

enum class GpuTransport {
  automatic,  // NCCL, or host memory where ranks share GPUs or NCCL is missing; peer memory
              // before it where that can be had
  nccl,       // alone
  peer,       // peer memory, host memory behind it
  host,       // alone
};

struct GpuCommunicatorOptions {
  GpuTransport transport = GpuTransport::automatic;
  bool shares_gpu = false;  // this rank has its GPU together with others
  size_t sum_bytes = 0;     // of the longest sum over ranks; 0: the group has none
  Staging staging;
  double limit_s = 60;  // for NCCL's waits
};

struct GpuCommunicator {
  std::unique_ptr<Communicator> communicator;
  // "NCCL, sums up to 512 KiB by peer memory", with what was meant to be and could not.
  std::string words;
};

// The group's ranks in world order; a collective call of those ranks with `tag` and tag + 1
// (make_host_communicator). Throws AgreedError, the same on every rank, where what `transport`
// names can't be had.
GpuCommunicator make_gpu_communicator(const MpiSession& session, std::span<const int> world_ranks,
                                      int tag, const GpuCommunicatorOptions& options,
                                      kernels::Stream& stream);

}  // namespace weft::parallel
