// A job in which NCCL fails on the last rank while it waits for its GPU: a library stands for NCCL
// (the argument), and the GPU's work never ends. The others wait for a message of that rank. One
// line on stderr must name it and NCCL's reason, and every rank must end.
#include <dlfcn.h>

#include <cstdio>

#include "launch/failures.h"
#include "launch/rank_process.h"
#include "parallel/nccl_handle.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/gpu_wait.h"
#include "tests/parallel/fake_nccl.h"
#include "tests/support/thread_communicator.h"

namespace weft {
namespace {

class Group final : public test::ThreadCommunicator {
 public:
  Group(test::ThreadHub& hub, parallel::NcclHandle& handle)
      : ThreadCommunicator(hub, 0), handle_(handle) {}
  void poll() override { handle_.poll(); }

 private:
  parallel::NcclHandle& handle_;
};

void wait_for_ever(const std::string& library_file) {
  const parallel::NcclLibrary library(library_file);
  auto* fake = static_cast<FakeNccl*>(
      dlsym(dlopen(library_file.c_str(), RTLD_NOW | RTLD_LOCAL), "fake_nccl"));
  parallel::NcclHandle handle(library, {}, 1, 2, 10);
  test::ThreadHub hub(2);
  Group group(hub, handle);
  parallel::Communicator* const groups[] = {&group};
  fake->has_graphs = true;  // of decode steps, which the failure finds alive
  int n_looks = 0;
  runtime::wait_beside(groups, [&] {
    if (++n_looks == 1000) fake->async_error = 6;
    return false;
  });
}

void work(const launch::RankProcess& process, const std::string& library) {
  const parallel::MpiSession& session = process.session;
  const int last = session.size() - 1;
  if (session.rank() == last) wait_for_ever(library);
  int never = 0;
  MPI_Request request;
  parallel::check(MPI_Irecv(&never, 1, MPI_INT, last, 0, session.world(), &request), "MPI_Irecv");
  parallel::wait_gently(&request);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  start_logging(-1, false);
  try {
    launch::as_rank({}, [&](launch::RankProcess& process) {
      work(process, argc > 1 ? argv[1] : "libnccl.so.2");
    });
    return 0;
  } catch (const launch::AlreadySaid& error) {
    return error.status();
  } catch (const Error& error) {
    std::fprintf(stderr, "nccl_fault_program: %s\n", error.what());
    return 2;
  }
}
