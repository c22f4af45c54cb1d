// The choice, and the words about it.
#include "parallel/gpu_communicator.h"

#include "parallel/host_communicator.h"
#include "parallel/nccl_communicator.h"
#include "parallel/peer_communicator.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

using kernels::Stream;

struct Group {
  const MpiSession& session;
  std::span<const int> world_ranks;
  int tag;
  const GpuCommunicatorOptions& options;
  Stream& stream;

  std::unique_ptr<Communicator> host(int tag_offset, size_t scratch_bytes) const {
    return make_host_communicator(session, world_ranks, tag + tag_offset, scratch_bytes);
  }
};

std::unique_ptr<Communicator> nccl(const Group& group) {
  NcclOptions options;
  options.scratch_bytes = group.options.sum_bytes;
  options.limit_s = group.options.limit_s;
  return make_nccl_communicator(group.host(0, 0), options, group.stream);
}

// Sets `words`.
std::unique_ptr<Communicator> long_messages(const Group& group, std::string& words) {
  const GpuTransport transport = group.options.transport;
  std::string why;
  if (transport == GpuTransport::automatic && group.options.shared_gpus) why = "ranks share GPUs";
  if (transport != GpuTransport::staged && why.empty()) {
    try {
      words = "NCCL";
      return nccl(group);
    } catch (const AgreedError& e) {
      if (transport == GpuTransport::nccl) throw;
      why = e.what();
    }
  }
  words = why.empty() ? "through host memory" : fmt::format("through host memory ({})", why);
  return make_staged_communicator(group.host(0, group.options.staging.collective_bytes),
                                  group.options.staging);
}

}  // namespace

GpuCommunicator make_gpu_communicator(const MpiSession& session, std::span<const int> world_ranks,
                                      int tag, const GpuCommunicatorOptions& options,
                                      Stream& stream) {
  const Group group{session, world_ranks, tag, options, stream};
  GpuCommunicator made;
  made.communicator = long_messages(group, made.words);
  if (!options.peer_memory || options.sum_bytes == 0 || world_ranks.size() == 1) return made;
  auto host = group.host(1, 0);
  std::string why_not;
  const PeerLimits largest = default_peer_limits();
  auto memory = PeerMemory::make(*host, peer_half_words(host->size(), largest), stream, why_not);
  if (memory == nullptr) {
    made.words += fmt::format(", no peer memory ({})", why_not);
    host->close();
    return made;
  }
  auto peers = std::make_unique<PeerCommunicator>(std::move(made.communicator), std::move(host),
                                                  std::move(memory), stream);
  if (!options.shared_gpus && peers->capturable()) peers->measure_limits();
  made.words +=
      fmt::format(", sums up to {} KiB by peer memory", peers->limits().two_shot_bytes >> 10);
  made.communicator = std::move(peers);
  return made;
}

}  // namespace weft::parallel
