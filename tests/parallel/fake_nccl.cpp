// A library with the functions of NCCL that weft calls, of which only the states of a communicator
// work.
#include "tests/parallel/fake_nccl.h"

#include <unistd.h>

#include <cstddef>

namespace {

struct Id {
  char bytes[128];
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

constexpr int kInProgress = 7;
int looks = 0;

}  // namespace

struct ncclComm {};

extern "C" {

FakeNccl fake_nccl;

int ncclGetVersion(int* version) {
  *version = fake_nccl.version;
  return 0;
}

const char* ncclGetErrorString(int status) { return status == 6 ? "remote error" : "other error"; }
const char* ncclGetLastError(ncclComm*) { return "the cable is out"; }

int ncclGetUniqueId(Id* id) {
  *id = {};
  return 0;
}

int ncclCommInitRankConfig(ncclComm** comm, int, Id, int, Config* config) {
  static ncclComm one;
  *comm = &one;
  fake_nccl.blocking = config->magic != 0xcafebeef || config->blocking != 0;
  looks = 0;
  return kInProgress;
}

int ncclCommGetAsyncError(ncclComm*, int* status) {
  const bool ends = fake_nccl.n_finalized > 0;
  const bool ready = !fake_nccl.never_ready && ++looks >= fake_nccl.looks_until_ready &&
                     !(ends && fake_nccl.has_graphs);
  *status = ready ? fake_nccl.async_error : kInProgress;
  return 0;
}

int ncclCommFinalize(ncclComm*) {
  ++fake_nccl.n_finalized;
  looks = 0;
  return kInProgress;
}

int ncclCommDestroy(ncclComm*) {
  ++fake_nccl.n_destroyed;
  return 0;
}

int ncclCommAbort(ncclComm*) {
  ++fake_nccl.n_aborted;
  while (fake_nccl.has_graphs) usleep(1000);
  return 0;
}

int ncclGroupStart() { return 0; }
int ncclGroupEnd() { return fake_nccl.call_status; }

int ncclAllReduce(const void*, void*, size_t, int, int, ncclComm*, void*) {
  return fake_nccl.call_status;
}
int ncclAllGather(const void*, void*, size_t, int, ncclComm*, void*) {
  return fake_nccl.call_status;
}
int ncclReduceScatter(const void*, void*, size_t, int, int, ncclComm*, void*) {
  return fake_nccl.call_status;
}
int ncclBroadcast(const void*, void*, size_t, int, int, ncclComm*, void*) {
  return fake_nccl.call_status;
}
int ncclSend(const void*, size_t, int, int, ncclComm*, void*) { return fake_nccl.call_status; }
int ncclRecv(void*, size_t, int, int, ncclComm*, void*) { return fake_nccl.call_status; }
}
