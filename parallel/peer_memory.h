// The exchange memory of a group of GPUs on one host: each rank's own allocation, which all the
// others map by CUDA IPC and write into (kernels/gpu_peer_reduce.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu_device.h"
#include "kernels/gpu_ipc.h"
#include "kernels/gpu_peer_reduce.h"
#include "parallel/communicator.h"

namespace weft::parallel {

class PeerMemory {
 public:
  // What a rank takes on its GPU.
  static size_t bytes(size_t half_words);

  // Among the ranks of `host`, a communicator of host memory; a collective. Null, the same on every
  // rank, where it can't be had, with the reason in `why_not`: a group of one or of more than
  // kMostPeers ranks, several hosts, GPUs that don't reach each other, too little memory.
  static std::unique_ptr<PeerMemory> make(Communicator& host, size_t half_words,
                                          kernels::Stream& stream, std::string& why_not);
  // Without close(), waits of kernels in flight are ended, their sums worthless.
  ~PeerMemory() { abort(); }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  const kernels::PeerGroup& group() const { return group_; }
  // Ends all waits of this rank's kernels, for good.
  void abort();
  bool aborted() const;
  // Once this rank's operations have ended: lets go of the others' memory, waits until all have,
  // then frees its own. A collective.
  void close(Communicator& host, kernels::Stream& stream);

 private:
  explicit PeerMemory(size_t half_words);

  kernels::GpuBuffer memory_;                // two halves
  kernels::GpuBuffer state_;                 // PeerState
  kernels::PinnedBuffer abort_;              // one uint32_t
  std::vector<kernels::GpuImport> imports_;  // the others', by rank
  kernels::PeerGroup group_;
};

}  // namespace weft::parallel
