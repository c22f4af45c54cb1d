// One rank's place in an NCCL communicator, from start to end. NCCL is told not to block, so that
// every wait for it has a limit here; whatever fails ends the communicator at once (ncclCommAbort
// frees kernels that wait for peers), since after a failure peers can't be waited for.
#pragma once

#include <utility>

#include "parallel/nccl_library.h"

namespace weft::parallel {

class NcclHandle {
 public:
  // A collective of `ranks` ranks, each on the GPU that is current. Throws Error where NCCL refuses
  // or is not ready within limit_s, which also bounds each later wait.
  NcclHandle(const NcclLibrary& library, const NcclId& id, int rank, int ranks, double limit_s);
  ~NcclHandle() { abort(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  ncclComm* get() const { return comm_; }

  // Of each call's status: returns once NCCL has taken the call in, so that the stream has it and a
  // graph may end its recording. Throws Error, `call` failed.
  void settle(int status, const char* call);
  // Throws Error where a peer, a link or this rank has failed since. Never blocks.
  void poll();
  // In order, on every rank: what was begun completes first. NCCL waits until every graph that has
  // recorded the communicator is gone.
  void close();
  // From here on nothing can be called but abort(). Kernels that wait for peers end at once; NCCL
  // may be busy with the rest for as long as graphs that have recorded the communicator live, which
  // is not waited for.
  void abort();

 private:
  int state() const;
  [[noreturn]] void fail(int status, const char* call);

  const NcclLibrary& library_;
  double limit_s_;
  ncclComm* comm_ = nullptr;
};

}  // namespace weft::parallel
