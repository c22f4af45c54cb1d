// NCCL's states, polled.
#include "parallel/nccl_handle.h"

#include <chrono>
#include <future>
#include <thread>

#include "parallel/patience.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kAbortPatience{1};

}  // namespace

NcclHandle::NcclHandle(const NcclLibrary& library, const NcclId& id, int rank, int ranks,
                       double limit_s)
    : library_(library), limit_s_(limit_s) {
  NcclConfig config;
  config.blocking = 0;
  settle(library_.comm_init_rank_config(&comm_, ranks, id, rank, &config),
         "ncclCommInitRankConfig");
}

int NcclHandle::state() const {
  int state = kNcclSuccess;
  const int status = library_.comm_get_async_error(comm_, &state);
  return status == kNcclSuccess ? state : status;
}

void NcclHandle::fail(int status, const char* call) {
  const std::string text = library_.error_text(status);
  abort();
  throw run_error("{} failed: {}", call, text);
}

void NcclHandle::settle(int status, const char* call) {
  if (status == kNcclSuccess) return;
  const Clock::time_point start = Clock::now();
  Patience patience;
  while (status == kNcclInProgress) {
    if (std::chrono::duration<double>(Clock::now() - start).count() > limit_s_) {
      abort();
      throw run_error("{} did not complete within {:g} s: a rank of its group is missing or stuck",
                      call, limit_s_);
    }
    patience.pause();
    status = state();
  }
  if (status != kNcclSuccess) fail(status, call);
}

void NcclHandle::poll() {
  if (comm_ == nullptr) throw run_error("NCCL was ended by an earlier failure");
  const int status = state();
  if (status != kNcclSuccess && status != kNcclInProgress) fail(status, "NCCL");
}

void NcclHandle::close() {
  WEFT_EXPECT(comm_ != nullptr);
  settle(library_.comm_finalize(comm_), "ncclCommFinalize");
  const int status = library_.comm_destroy(std::exchange(comm_, nullptr));
  if (status != kNcclSuccess)
    throw run_error("ncclCommDestroy failed: {}", library_.error_text(status));
}

void NcclHandle::abort() {
  if (comm_ == nullptr) return;
  std::packaged_task<void()> call(
      [abort = library_.comm_abort, comm = std::exchange(comm_, nullptr)] { abort(comm); });
  const std::future<void> done = call.get_future();
  std::thread(std::move(call)).detach();
  done.wait_for(kAbortPatience);
}

}  // namespace weft::parallel
