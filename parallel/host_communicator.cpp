// Collectives as direct messages between all pairs of the group: at the size of a tensor-parallel
// group (2 to 8 ranks) fewer steps count for more than fewer messages. A sum takes one step while
// the message is small (everyone sends everything and adds it all up), else two (everyone adds one
// part up, then sends it to all). Both add in tree_sum's order, so the bits don't depend on it.
#include "parallel/host_communicator.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <vector>

#include "parallel/message_list.h"
#include "parallel/tree_sum.h"
#include "runtime/base/error.h"
#include "runtime/base/pages.h"

namespace weft::parallel {
namespace {

using kernels::Stream;

constexpr int kCollectiveTag = 1;
constexpr int kExchangeTag = 2;
constexpr size_t kBlockBytes = 1 << 20;  // of the datatype for messages over INT_MAX bytes
constexpr size_t kExchanges = 16;        // in flight
// The largest message that is summed in one step: where the time of the additional bytes passes
// that of a second step, measured over shared memory with 2 ranks (8 to 16 KiB) and 4 (16 KiB).
constexpr size_t kOneStepBytes = 8 << 10;

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(MPI_Comm comm, MPI_Datatype block_type, size_t scratch_bytes);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(void* data, size_t n, DType dtype, Stream& stream) override;
  void all_reduce_tree(float* data, size_t n, Stream& stream) override;
  void all_gather(const void* mine, void* all, size_t bytes, Stream& stream) override;
  void reduce_scatter(const float* in, float* out, size_t n, Stream& stream) override;
  void all_to_all(const void* in, void* out, size_t bytes, Stream& stream) override;
  void broadcast(void* data, size_t bytes, int root, Stream& stream) override;
  Ticket start(std::span<const Transfer> transfers, Stream& stream) override;
  bool test(Ticket ticket) override;
  void wait(Ticket ticket, Stream& stream) override;
  bool capturable() const override { return false; }
  void close() override;

 private:
  struct Exchange {
    uint32_t ticket = 0;
    bool in_flight = false;
    MessageList messages;
  };

  // Peers are taken in turn from one's own place, so that no rank is everyone's first.
  int peer(int step) const { return (rank_ + step) % size_; }
  std::byte* scratch_slot(int from_rank, size_t bytes) const {
    return scratch_.data() + static_cast<size_t>(from_rank - (from_rank > rank_)) * bytes;
  }
  Exchange& exchange_of(Ticket ticket);
  void check_reducible(size_t bytes) const;
  void sum_in_one_step(std::byte* data, size_t n, DType dtype);
  void sum_in_two_steps(std::byte* data, size_t n, DType dtype);
  void sum_parts(const void* mine, void* out, size_t n, DType dtype);

  MPI_Comm comm_;
  MPI_Datatype block_type_;
  int rank_;
  int size_;
  size_t scratch_bytes_;
  Pages scratch_;                   // [size - 1] messages or parts of one, by rank
  std::vector<const void*> parts_;  // [size]
  MessageList collective_;
  std::vector<Exchange> exchanges_;  // [kExchanges]; ticket t uses t % kExchanges
  uint32_t next_ticket_ = 0;
};

HostCommunicator::HostCommunicator(MPI_Comm comm, MPI_Datatype block_type, size_t scratch_bytes)
    : comm_(comm),
      block_type_(block_type),
      rank_(rank_in(comm)),
      size_(size_of(comm)),
      scratch_bytes_(scratch_bytes),
      parts_(static_cast<size_t>(size_)),
      collective_({comm, kCollectiveTag, block_type, kBlockBytes, INT_MAX}, 2 * parts_.size()) {
  const size_t ranks = parts_.size();
  if (ranks > 1) {
    const size_t one_step = (ranks - 1) * std::min(kOneStepBytes, scratch_bytes);
    const size_t rounding = ranks * sizeof(float);  // parts are rounded up to whole elements
    scratch_ = Pages(std::max(one_step, scratch_bytes + rounding));
  }
  const Wire wire{comm, kExchangeTag, block_type, kBlockBytes, INT_MAX};
  for (size_t i = 0; i < kExchanges; ++i) {
    exchanges_.push_back({0, false, MessageList(wire, std::max<size_t>(64, 4 * ranks))});
  }
}

void HostCommunicator::check_reducible(size_t bytes) const {
  if (bytes <= scratch_bytes_) return;
  throw run_error("a sum over ranks of {} bytes exceeds the communicator's scratch of {} bytes",
                  bytes, scratch_bytes_);
}

void HostCommunicator::all_reduce(void* data, size_t n, DType dtype, Stream&) {
  WEFT_EXPECT(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
  const size_t bytes = n * dtype_bytes(dtype);
  check_reducible(bytes);
  if (size_ == 1 || n == 0) return;
  auto* first = static_cast<std::byte*>(data);
  if (bytes <= kOneStepBytes) {
    sum_in_one_step(first, n, dtype);
  } else {
    sum_in_two_steps(first, n, dtype);
  }
}

void HostCommunicator::all_reduce_tree(float* data, size_t n, Stream& stream) {
  if ((size_ & (size_ - 1)) != 0) {
    throw run_error("a sum by a fixed tree needs a power of two of ranks, not {}", size_);
  }
  all_reduce(data, n, DType::f32, stream);
}

void HostCommunicator::sum_in_one_step(std::byte* data, size_t n, DType dtype) {
  const size_t bytes = n * dtype_bytes(dtype);
  for (int step = 1; step < size_; ++step) {
    collective_.recv(scratch_slot(peer(step), bytes), bytes, peer(step));
  }
  for (int step = 1; step < size_; ++step) collective_.send(data, bytes, peer(step));
  collective_.wait();
  sum_parts(data, data, n, dtype);
}

void HostCommunicator::sum_in_two_steps(std::byte* data, size_t n, DType dtype) {
  const size_t element = dtype_bytes(dtype);
  const auto ranks = static_cast<size_t>(size_);
  const size_t part = (n + ranks - 1) / ranks;
  const auto begin = [&](int r) { return std::min(n, static_cast<size_t>(r) * part) * element; };
  const auto bytes = [&](int r) { return begin(r + 1) - begin(r); };

  for (int step = 1; step < size_; ++step) {
    collective_.recv(scratch_slot(peer(step), bytes(rank_)), bytes(rank_), peer(step));
  }
  for (int step = 1; step < size_; ++step) {
    collective_.send(data + begin(peer(step)), bytes(peer(step)), peer(step));
  }
  collective_.wait();
  std::byte* mine = data + begin(rank_);
  sum_parts(mine, mine, bytes(rank_) / element, dtype);
  for (int step = 1; step < size_; ++step) {
    collective_.recv(data + begin(peer(step)), bytes(peer(step)), peer(step));
  }
  for (int step = 1; step < size_; ++step) collective_.send(mine, bytes(rank_), peer(step));
  collective_.wait();
}

// Adds this rank's part and those that arrived in scratch.
void HostCommunicator::sum_parts(const void* mine, void* out, size_t n, DType dtype) {
  const size_t bytes = n * dtype_bytes(dtype);
  for (int r = 0; r < size_; ++r) {
    parts_[static_cast<size_t>(r)] = r == rank_ ? mine : scratch_slot(r, bytes);
  }
  tree_sum(parts_, out, n, dtype);
}

void HostCommunicator::reduce_scatter(const float* in, float* out, size_t n, Stream&) {
  const size_t bytes = n * sizeof(float);
  check_reducible(bytes * static_cast<size_t>(size_));
  for (int step = 1; step < size_; ++step) {
    collective_.recv(scratch_slot(peer(step), bytes), bytes, peer(step));
  }
  for (int step = 1; step < size_; ++step) {
    collective_.send(in + static_cast<size_t>(peer(step)) * n, bytes, peer(step));
  }
  collective_.wait();
  sum_parts(in + static_cast<size_t>(rank_) * n, out, n, DType::f32);
}

void HostCommunicator::all_gather(const void* mine, void* all, size_t bytes, Stream&) {
  auto* to = static_cast<std::byte*>(all);
  const auto place = [&](int r) { return to + static_cast<size_t>(r) * bytes; };
  for (int step = 1; step < size_; ++step) collective_.recv(place(peer(step)), bytes, peer(step));
  for (int step = 1; step < size_; ++step) collective_.send(mine, bytes, peer(step));
  if (bytes > 0 && mine != place(rank_)) std::memcpy(place(rank_), mine, bytes);
  collective_.wait();
}

void HostCommunicator::all_to_all(const void* in, void* out, size_t bytes, Stream&) {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  const auto offset = [&](int r) { return static_cast<size_t>(r) * bytes; };
  for (int step = 1; step < size_; ++step) {
    collective_.recv(to + offset(peer(step)), bytes, peer(step));
  }
  for (int step = 1; step < size_; ++step) {
    collective_.send(from + offset(peer(step)), bytes, peer(step));
  }
  if (bytes > 0) std::memcpy(to + offset(rank_), from + offset(rank_), bytes);
  collective_.wait();
}

// A binomial tree: place p (counted from the root) hears from p without its highest bit.
void HostCommunicator::broadcast(void* data, size_t bytes, int root, Stream&) {
  WEFT_EXPECT(root >= 0 && root < size_);
  const auto rank_at = [&](int place) { return (place + root) % size_; };
  const int place = (rank_ - root + size_) % size_;
  int bit = 1;
  while (bit <= place) bit *= 2;
  if (place > 0) {
    collective_.recv(data, bytes, rank_at(place - bit / 2));
    collective_.wait();
  }
  for (; place + bit < size_; bit *= 2) collective_.send(data, bytes, rank_at(place + bit));
  collective_.wait();
}

Ticket HostCommunicator::start(std::span<const Transfer> transfers, Stream&) {
  size_t tries = 0;
  while (exchanges_[next_ticket_ % kExchanges].in_flight) {
    if (++tries == kExchanges) throw run_error("{} exchanges are in flight already", kExchanges);
    ++next_ticket_;
  }
  Exchange& exchange = exchanges_[next_ticket_ % kExchanges];
  if (transfers.size() > exchange.messages.room()) {
    throw run_error("an exchange of {} transfers: at most {} at a time", transfers.size(),
                    exchange.messages.room());
  }
  for (const Transfer& transfer : transfers) {
    WEFT_EXPECT(transfer.peer >= 0 && transfer.peer < size_);
  }
  exchange.ticket = next_ticket_++;
  exchange.in_flight = true;
  // Receives first: what arrives then has its place already.
  for (const Transfer& transfer : transfers) {
    if (transfer.kind != Transfer::Kind::recv) continue;
    exchange.messages.recv(transfer.data, transfer.bytes, transfer.peer);
  }
  for (const Transfer& transfer : transfers) {
    if (transfer.kind != Transfer::Kind::send) continue;
    exchange.messages.send(transfer.data, transfer.bytes, transfer.peer);
  }
  return {exchange.ticket};
}

HostCommunicator::Exchange& HostCommunicator::exchange_of(Ticket ticket) {
  Exchange& exchange = exchanges_[ticket.index % kExchanges];
  WEFT_EXPECT(exchange.in_flight && exchange.ticket == ticket.index);
  return exchange;
}

bool HostCommunicator::test(Ticket ticket) {
  Exchange& exchange = exchange_of(ticket);
  if (!exchange.messages.test()) return false;
  exchange.in_flight = false;
  return true;
}

void HostCommunicator::wait(Ticket ticket, Stream&) {
  Exchange& exchange = exchange_of(ticket);
  exchange.messages.wait();
  exchange.in_flight = false;
}

void HostCommunicator::close() {
  WEFT_EXPECT(comm_ != MPI_COMM_NULL);
  for (const Exchange& exchange : exchanges_) WEFT_EXPECT(!exchange.in_flight);
  check(MPI_Type_free(&block_type_), "MPI_Type_free");
  check(MPI_Comm_free(&comm_), "MPI_Comm_free");
}

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(const MpiSession& session,
                                                     std::span<const int> world_ranks, int tag,
                                                     size_t scratch_bytes) {
  const auto mine = std::find(world_ranks.begin(), world_ranks.end(), session.rank());
  WEFT_EXPECT(mine != world_ranks.end());
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_group(session.world(), &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(session.world(), group, tag, &comm), "MPI_Comm_create_group");
  check(MPI_Group_free(&group), "MPI_Group_free");
  check(MPI_Group_free(&world), "MPI_Group_free");
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Datatype block_type = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(kBlockBytes, MPI_BYTE, &block_type), "MPI_Type_contiguous");
  check(MPI_Type_commit(&block_type), "MPI_Type_commit");
  return std::make_unique<HostCommunicator>(comm, block_type, scratch_bytes);
}

}  // namespace weft::parallel
