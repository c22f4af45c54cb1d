#include "parallel/peer_map.h"

#include "parallel/group_agreement.h"
#include "parallel/host_id.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

struct Offer {
  kernels::GpuIpcHandle handle;
  HostId host{};
};

}  // namespace

std::unique_ptr<PeerMap> PeerMap::make(Communicator& host, const kernels::GpuBuffer& mine,
                                       kernels::Stream& stream, std::string& why_not) {
  Offer offer;
  why_not = failure_in_group(host, stream, [&] {
    offer = {kernels::export_gpu_memory(mine), host_id()};
  });
  if (!why_not.empty()) return nullptr;
  std::vector<Offer> offers(static_cast<size_t>(host.size()));
  host.all_gather(&offer, offers.data(), sizeof offer, stream);
  auto made = std::make_unique<PeerMap>();
  made->memory_.resize(offers.size());
  why_not = failure_in_group(host, stream, [&] {
    for (int r = 0; r < host.size(); ++r) {
      const auto i = static_cast<size_t>(r);
      if (r == host.rank()) {
        made->memory_[i] = mine.data();
      } else if (offers[i].host == offer.host) {
        made->imports_.emplace_back(offers[i].handle);
        made->memory_[i] = made->imports_.back().data();
      }
    }
  });
  if (why_not.empty()) return made;
  made->close(host, stream);
  return nullptr;
}

void PeerMap::close(Communicator& host, kernels::Stream& stream) {
  kernels::synchronise(stream.gpu());
  wait_for_group(host, stream);  // a peer may still write here
  imports_.clear();
  wait_for_group(host, stream);
}

}  // namespace weft::parallel
