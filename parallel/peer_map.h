// One buffer of each GPU as all ranks of its host see it, by CUDA IPC: for copies straight from one
// GPU's memory into another's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gpu_device.h"
#include "kernels/gpu_ipc.h"
#include "parallel/communicator.h"

namespace weft::parallel {

class PeerMap {
 public:
  // Among the ranks of `host`, a communicator of host memory; a collective. `mine` is a multiple of
  // kernels::kIpcPageBytes and outlives close(). Null, the same on every rank, where GPUs of one
  // host don't reach each other, with the reason in `why_not`.
  static std::unique_ptr<PeerMap> make(Communicator& host, const kernels::GpuBuffer& mine,
                                       kernels::Stream& stream, std::string& why_not);

  // Of a rank of the group; null where it is on another host.
  std::byte* of(int rank) const { return memory_[static_cast<size_t>(rank)]; }
  // Lets go of the others' buffers, and waits until all have. A collective, after all copies.
  void close(Communicator& host, kernels::Stream& stream);

 private:
  std::vector<std::byte*> memory_;           // [ranks]
  std::vector<kernels::GpuImport> imports_;  // the others'
};

}  // namespace weft::parallel
