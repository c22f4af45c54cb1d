// dlopen, and the names.
#include "parallel/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

void close_library(void* library) {
  if (library != nullptr) dlclose(library);
}

}  // namespace

std::string nccl_version_text(int code) {
  const int scale = code < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", code / scale, code % scale / 100, code % 100);
}

template <class Function>
void NcclLibrary::find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library_.get(), name));
  if (function == nullptr)
    throw run_error("{} has no {}: it is not NCCL {} or newer", file_, name,
                    nccl_version_text(kOldestNccl));
}

// Its threads may outlive the last communicator, so it stays in memory (RTLD_NODELETE).
NcclLibrary::NcclLibrary(const std::string& file)
    : library_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), close_library),
      file_(file) {
  if (library_ == nullptr) {
    const char* why = dlerror();
    throw run_error(
        "NCCL cannot be loaded: {}; install NCCL {} or newer (libnccl2), or put its folder on "
        "LD_LIBRARY_PATH",
        why != nullptr ? why : file, nccl_version_text(kOldestNccl));
  }
  int (*get_version)(int*) = nullptr;
  find(get_version, "ncclGetVersion");
  if (get_version(&version_) != kNcclSuccess) throw run_error("{}: ncclGetVersion failed", file);
  if (version_ < kOldestNccl)
    throw run_error("{} is NCCL {}; weft needs {} or newer", file, nccl_version_text(version_),
                    nccl_version_text(kOldestNccl));
  find(get_error_string_, "ncclGetErrorString");
  find(get_last_error_, "ncclGetLastError");
  find(get_unique_id, "ncclGetUniqueId");
  find(comm_init_rank_config, "ncclCommInitRankConfig");
  find(comm_get_async_error, "ncclCommGetAsyncError");
  find(comm_finalize, "ncclCommFinalize");
  find(comm_destroy, "ncclCommDestroy");
  find(comm_abort, "ncclCommAbort");
  find(group_start, "ncclGroupStart");
  find(group_end, "ncclGroupEnd");
  find(all_reduce, "ncclAllReduce");
  find(all_gather, "ncclAllGather");
  find(reduce_scatter, "ncclReduceScatter");
  find(broadcast, "ncclBroadcast");
  find(send, "ncclSend");
  find(recv, "ncclRecv");
  setenv("NCCL_NVLS_ENABLE", "0", 0);
}

std::string NcclLibrary::error_text(int status) const {
  const char* kind = get_error_string_(status);
  const char* latest = get_last_error_(nullptr);
  if (latest == nullptr || *latest == '\0') return kind;
  return fmt::format("{}: {}", kind, latest);
}

}  // namespace weft::parallel
