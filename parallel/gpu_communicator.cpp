// The choice, and the words about it.
#include "parallel/gpu_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

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

std::unique_ptr<Communicator> staged(const Group& group) {
  const Staging& staging = group.options.staging;
  return make_staged_communicator(group.host(0, staging.collective_bytes), staging);
}

// From 2.30.3 on NCCL takes several ranks of a GPU, when it is told to; an older one says what is
// wrong.
std::unique_ptr<Communicator> nccl(const Group& group, bool shared) {
  if (shared) setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  NcclOptions options;
  options.scratch_bytes = group.options.sum_bytes;
  options.limit_s = group.options.limit_s;
  return make_nccl_communicator(group.host(0, 0), options, group.stream);
}

// What takes the messages that peer memory does not.
GpuCommunicator long_messages(const Group& group, bool shared) {
  const GpuTransport transport = group.options.transport;
  if (transport == GpuTransport::nccl) return {nccl(group, shared), "NCCL"};
  if (transport != GpuTransport::automatic) return {staged(group), "through host memory"};
  std::string why = "ranks share GPUs";
  if (group.world_ranks.size() == 1) {
    why = "a rank by itself";  // NCCL would take memory and half a second
  } else if (!shared) {
    try {
      return {nccl(group, shared), "NCCL"};
    } catch (const AgreedError& e) {
      why = e.what();
    }
  }
  return {staged(group), fmt::format("through host memory ({})", why)};
}

// Whether any rank of the group shares its GPU.
bool any_shares(Communicator& host, bool mine, Stream& stream) {
  std::vector<char> all(static_cast<size_t>(host.size()));
  const char own = mine ? 1 : 0;
  host.all_gather(&own, all.data(), 1, stream);
  return std::count(all.begin(), all.end(), 1) > 0;
}

void put_peers_before(GpuCommunicator& made, const Group& group, std::unique_ptr<Communicator> host,
                      bool shared) {
  std::string why_not;
  auto memory = PeerMemory::make(*host, peer_half_words(host->size(), default_peer_limits()),
                                 group.stream, why_not);
  if (memory == nullptr) {
    host->close();
    if (group.options.transport == GpuTransport::peer)
      throw AgreedError(fmt::format("no peer memory between these GPUs: {}", why_not), 1);
    made.words += fmt::format(", no peer memory ({})", why_not);
    return;
  }
  auto peers = std::make_unique<PeerCommunicator>(std::move(made.communicator), std::move(host),
                                                  std::move(memory), group.stream);
  if (!shared && peers->capturable()) peers->measure_limits();
  made.words +=
      fmt::format(", sums up to {} KiB by peer memory", peers->limits().two_shot_bytes >> 10);
  made.communicator = std::move(peers);
}

}  // namespace

GpuCommunicator make_gpu_communicator(const MpiSession& session, std::span<const int> world_ranks,
                                      int tag, const GpuCommunicatorOptions& options,
                                      Stream& stream) {
  const Group group{session, world_ranks, tag, options, stream};
  auto host = group.host(1, 0);
  const bool shared = any_shares(*host, options.shares_gpu, stream);
  GpuCommunicator made = long_messages(group, shared);
  const bool has_peers =
      options.transport == GpuTransport::automatic || options.transport == GpuTransport::peer;
  if (has_peers && options.sum_bytes > 0 && host->size() > 1)
    put_peers_before(made, group, std::move(host), shared);
  else
    host->close();
  return made;
}

}  // namespace weft::parallel
