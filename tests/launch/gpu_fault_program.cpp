// A job in which the last rank's GPU fails: a kernel of it reads where nothing is. The others wait
// for a message of it that never comes. One line on stderr must name that rank, its GPU and CUDA's
// error, and every rank must end. Ranks may share a GPU.
#include <cstdio>

#include "kernels/gpu_device.h"
#include "kernels/gpu_embedding.h"
#include "launch/device_choice.h"
#include "launch/failures.h"
#include "launch/rank_process.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace weft::launch {
namespace {

void fail_on_gpu() {
  const kernels::GpuStream stream;
  const kernels::GpuBuffer memory(1 << 20);
  kernels::GpuEmbedding args;
  args.table = {memory.data(), DType::bf16};
  args.ids = reinterpret_cast<const int32_t*>(0x1000);
  args.y = {memory.data(), DType::bf16};
  args.tokens = args.shard_rows = 8;
  args.hidden = 64;
  kernels::gpu_embedding(args, stream);
  stream.synchronise();
}

void work(const RankProcess& process) {
  const parallel::MpiSession& session = process.session;
  const Device device =
      choose_device(session, process.binding, {BackendChoice::cuda, true, true, {}});
  kernels::select_gpu(*device.gpu);
  parallel::check(MPI_Barrier(session.world()), "MPI_Barrier");
  const int last = session.size() - 1;
  if (session.rank() == last) fail_on_gpu();
  int never = 0;
  MPI_Request request;
  parallel::check(MPI_Irecv(&never, 1, MPI_INT, last, 0, session.world(), &request), "MPI_Irecv");
  parallel::wait_gently(&request);
}

}  // namespace
}  // namespace weft::launch

int main() {
  using namespace weft;
  start_logging(-1, false);
  launch::RankOptions options;
  options.bind = {.use_gpus = true, .share_gpus = true};
  try {
    launch::as_rank(options, [](launch::RankProcess& process) { launch::work(process); });
    return 0;
  } catch (const launch::AlreadySaid& error) {
    return error.status();
  } catch (const Error& error) {
    std::fprintf(stderr, "gpu_fault_program: %s\n", error.what());
    return 2;
  }
}
