// Handles through the host's communicator; what fails on one rank is known to all before the next
// step.
#include "parallel/peer_memory.h"

#include <algorithm>
#include <atomic>

#include "parallel/group_agreement.h"
#include "parallel/host_id.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

// What a rank tells the others about its memory.
struct Offer {
  kernels::GpuIpcHandle handle;
  HostId host{};
};

std::atomic_ref<uint32_t> word(const kernels::PinnedBuffer& buffer) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(buffer.data()));
}

}  // namespace

size_t PeerMemory::bytes(size_t half_words) {
  const size_t halves = 2 * half_words * kernels::kPeerWordBytes;
  return (halves + kernels::kIpcPageBytes - 1) / kernels::kIpcPageBytes * kernels::kIpcPageBytes;
}

PeerMemory::PeerMemory(size_t half_words)
    : memory_(bytes(half_words)), state_(sizeof(kernels::PeerState)), abort_(sizeof(uint32_t)) {
  group_.half_words = half_words;
  group_.state = reinterpret_cast<kernels::PeerState*>(state_.data());
  group_.abort = reinterpret_cast<const uint32_t*>(abort_.data());
}

std::unique_ptr<PeerMemory> PeerMemory::make(Communicator& host, size_t half_words,
                                             kernels::Stream& stream, std::string& why_not) {
  if (host.size() == 1 || host.size() > kernels::kMostPeers) {
    why_not =
        fmt::format("groups of 2 to {} ranks use it, not of {}", kernels::kMostPeers, host.size());
    return nullptr;
  }
  half_words = std::max(half_words, kernels::kPeerWordsCleared);
  std::unique_ptr<PeerMemory> made;
  Offer mine;
  why_not = failure_in_group(host, stream, [&] {
    made.reset(new PeerMemory(half_words));
    kernels::clear_bytes(made->memory_.data(), made->memory_.bytes(), stream.gpu());
    kernels::clear_bytes(made->state_.data(), made->state_.bytes(), stream.gpu());
    kernels::synchronise(stream.gpu());
    mine = {kernels::export_gpu_memory(made->memory_), host_id()};
  });
  if (!why_not.empty()) return nullptr;
  std::vector<Offer> offers(static_cast<size_t>(host.size()));
  host.all_gather(&mine, offers.data(), sizeof mine, stream);
  kernels::PeerGroup& group = made->group_;
  group.rank = host.rank();
  group.ranks = host.size();
  why_not = failure_in_group(host, stream, [&] {
    for (int r = 0; r < group.ranks; ++r) {
      const Offer& offer = offers[static_cast<size_t>(r)];
      if (r == group.rank) {
        group.memory[r] = made->memory_.data();
        continue;
      }
      if (offer.host != mine.host) throw run_error("rank {} of its group is on another host", r);
      made->imports_.emplace_back(offer.handle);
      group.memory[r] = made->imports_.back().data();
    }
  });
  if (why_not.empty()) return made;
  made->close(host, stream);
  return nullptr;
}

void PeerMemory::abort() {
  if (abort_.data() != nullptr) word(abort_).store(1, std::memory_order_release);
}

bool PeerMemory::aborted() const { return word(abort_).load(std::memory_order_acquire) != 0; }

void PeerMemory::close(Communicator& host, kernels::Stream& stream) {
  kernels::synchronise(stream.gpu());
  wait_for_group(host, stream);  // a peer may still write here
  imports_.clear();
  wait_for_group(host, stream);
  memory_ = {};
}

}  // namespace weft::parallel
