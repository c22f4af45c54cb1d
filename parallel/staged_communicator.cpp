// Every operation: GPU memory to pinned memory, the host's operation, and back.
#include "parallel/staged_communicator.h"

#include <vector>

#include "kernels/gpu_device.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

using kernels::copy_bytes;
using kernels::PinnedBuffer;
using kernels::Stream;

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host, const Staging& staging)
      : host_(std::move(host)), pinned_(host_->size() > 1 ? staging.collective_bytes : 0) {
    if (host_->size() == 1) return;
    for (size_t i = 0; i < staging.n_exchanges; ++i)
      areas_.emplace_back(staging.exchange_bytes, static_cast<size_t>(host_->size()));
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce(void* data, size_t n, DType dtype, Stream& stream) override {
    if (size() == 1) return;
    const size_t bytes = n * dtype_bytes(dtype);
    fetch(data, bytes, bytes, stream);
    host_->all_reduce(pinned_.data(), n, dtype, stream);
    copy_bytes(data, pinned_.data(), bytes, stream.gpu());
  }

  void all_reduce_tree(float* data, size_t n, Stream& stream) override {
    if (size() == 1) return;
    const size_t bytes = n * sizeof(float);
    fetch(data, bytes, bytes, stream);
    host_->all_reduce_tree(reinterpret_cast<float*>(pinned_.data()), n, stream);
    copy_bytes(data, pinned_.data(), bytes, stream.gpu());
  }

  void all_gather(const void* mine, void* all, size_t bytes, Stream& stream) override {
    if (size() == 1 && mine == all) return;
    if (size() == 1) return copy_bytes(all, mine, bytes, stream.gpu());
    const size_t all_bytes = bytes * static_cast<size_t>(size());
    std::byte* place = pinned_.data() + static_cast<size_t>(rank()) * bytes;
    check_room(all_bytes);
    copy_bytes(place, mine, bytes, stream.gpu());
    kernels::synchronise(stream.gpu());
    host_->all_gather(place, pinned_.data(), bytes, stream);
    copy_bytes(all, pinned_.data(), all_bytes, stream.gpu());
  }

  void reduce_scatter(const float* in, float* out, size_t n, Stream& stream) override {
    const size_t part = n * sizeof(float), all = part * static_cast<size_t>(size());
    if (size() == 1) return copy_bytes(out, in, part, stream.gpu());
    fetch(in, all, all + part, stream);
    auto* sum = reinterpret_cast<float*>(pinned_.data() + all);
    host_->reduce_scatter(reinterpret_cast<const float*>(pinned_.data()), sum, n, stream);
    copy_bytes(out, sum, part, stream.gpu());
  }

  void all_to_all(const void* in, void* out, size_t bytes, Stream& stream) override {
    const size_t all = bytes * static_cast<size_t>(size());
    if (size() == 1) return copy_bytes(out, in, all, stream.gpu());
    fetch(in, all, 2 * all, stream);
    host_->all_to_all(pinned_.data(), pinned_.data() + all, bytes, stream);
    copy_bytes(out, pinned_.data() + all, all, stream.gpu());
  }

  void broadcast(void* data, size_t bytes, int root, Stream& stream) override {
    if (size() == 1) return;
    fetch(data, bytes, bytes, stream);
    host_->broadcast(pinned_.data(), bytes, root, stream);
    if (rank() != root) copy_bytes(data, pinned_.data(), bytes, stream.gpu());
  }

  Ticket start(std::span<const Transfer> transfers, Stream& stream) override;
  bool test(Ticket ticket) override;
  void wait(Ticket ticket, Stream& stream) override;
  bool capturable() const override { return false; }
  void close() override { host_->close(); }

 private:
  // What one exchange in flight holds.
  struct Area {
    PinnedBuffer pinned;
    std::vector<Transfer> transfers;  // with data in `pinned`
    std::vector<void*> destinations;  // on the GPU, of what is received; null for sends
    Ticket ticket;                    // the host's
    kernels::CudaStream stream = nullptr;
    bool in_flight = false;

    Area(size_t bytes, size_t n_ranks) : pinned(bytes) {
      transfers.reserve(2 * n_ranks);
      destinations.reserve(2 * n_ranks);
    }
  };

  void check_room(size_t bytes) const {
    if (bytes > pinned_.bytes())
      throw run_error("a collective of {} bytes exceeds the staging of {}", bytes, pinned_.bytes());
  }

  // GPU data to pinned memory, and everything before it done; `room` bytes will be used there.
  void fetch(const void* data, size_t bytes, size_t room, Stream& stream) {
    check_room(room);
    copy_bytes(pinned_.data(), data, bytes, stream.gpu());
    kernels::synchronise(stream.gpu());
  }

  void deliver(Area& area);
  Area& area_of(Ticket ticket) {
    Area& area = areas_.at(ticket.index);
    WEFT_EXPECT(area.in_flight);
    return area;
  }

  std::unique_ptr<Communicator> host_;
  PinnedBuffer pinned_;
  std::vector<Area> areas_;  // a ticket is an index
};

Ticket StagedCommunicator::start(std::span<const Transfer> transfers, Stream& stream) {
  size_t index = 0;
  while (index < areas_.size() && areas_[index].in_flight) ++index;
  if (index == areas_.size()) throw run_error("{} exchanges are in flight already", index);
  Area& area = areas_[index];
  area.transfers.clear();
  area.destinations.clear();
  std::byte* place = area.pinned.data();
  for (const Transfer& transfer : transfers) {
    const auto used = static_cast<size_t>(place - area.pinned.data());
    if (transfer.bytes > area.pinned.bytes() - used)
      throw run_error("an exchange exceeds its staging of {} bytes", area.pinned.bytes());
    const bool sends = transfer.kind == Transfer::Kind::send;
    if (sends) copy_bytes(place, transfer.data, transfer.bytes, stream.gpu());
    area.transfers.push_back({transfer.kind, transfer.peer, place, transfer.bytes});
    area.destinations.push_back(sends ? nullptr : transfer.data);
    place += std::min(round_up(transfer.bytes), area.pinned.bytes() - used);
  }
  // Also so that what an earlier exchange received here has left.
  kernels::synchronise(stream.gpu());
  area.ticket = host_->start(area.transfers, stream);
  area.stream = stream.gpu();
  area.in_flight = true;
  return {static_cast<uint32_t>(index)};
}

void StagedCommunicator::deliver(Area& area) {
  for (size_t i = 0; i < area.transfers.size(); ++i)
    if (area.destinations[i] != nullptr)
      copy_bytes(area.destinations[i], area.transfers[i].data, area.transfers[i].bytes,
                 area.stream);
  area.in_flight = false;
}

bool StagedCommunicator::test(Ticket ticket) {
  Area& area = area_of(ticket);
  if (!host_->test(area.ticket)) return false;
  deliver(area);
  return true;
}

void StagedCommunicator::wait(Ticket ticket, Stream& stream) {
  Area& area = area_of(ticket);
  host_->wait(area.ticket, stream);
  area.stream = stream.gpu();
  deliver(area);
}

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       const Staging& staging) {
  return std::make_unique<StagedCommunicator>(std::move(host), staging);
}

}  // namespace weft::parallel
