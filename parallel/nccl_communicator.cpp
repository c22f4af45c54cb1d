// Collectives as NCCL has them; what it has not, as grouped sends and receives.
#include "parallel/nccl_communicator.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/gpu_device.h"
#include "kernels/gpu_tree_sum.h"
#include "parallel/group_agreement.h"
#include "parallel/nccl_handle.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

using kernels::GpuEvent;
using kernels::Stream;

constexpr uint32_t kExchanges = 16;  // in flight
// The largest message that all_reduce_tree gathers whole before it sums; longer ones are summed in
// parts, which moves less and takes one step more.
constexpr size_t kGatherBytes = 64 << 10;

int nccl_type(DType dtype) {
  WEFT_EXPECT(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16);
  if (dtype == DType::f16) return kNcclFloat16;
  return dtype == DType::bf16 ? kNcclBfloat16 : kNcclFloat32;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, std::unique_ptr<NcclLibrary> library,
                   const NcclId& id, const NcclOptions& options);

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
  bool capturable() const override { return true; }
  void poll() override { handle_.poll(); }
  void abort() override { handle_.abort(); }
  void close() override;

 private:
  struct Exchange {
    uint32_t ticket = 0;
    bool in_flight = false;
    GpuEvent done;
  };

  // Every call; what is in the group's room goes out together.
  template <class Call>
  void run(const char* name, Call call) {
    if (handle_.get() == nullptr) throw run_error("{}: NCCL was ended by an earlier failure", name);
    handle_.settle(call(), name);
  }
  template <class Calls>
  void run_group(const char* name, Calls calls);
  void send(const void* data, size_t bytes, int peer, kernels::CudaStream stream);
  void recv(void* data, size_t bytes, int peer, kernels::CudaStream stream);
  void sum_whole(float* data, size_t n, Stream& stream);
  void sum_in_parts(float* data, size_t n, Stream& stream);
  Exchange& exchange_of(Ticket ticket);

  std::unique_ptr<Communicator> host_;
  std::unique_ptr<NcclLibrary> library_;
  int rank_;
  int size_;
  kernels::GpuBuffer scratch_;  // [size, n] or [size, part]
  kernels::GpuStream exchange_stream_;
  GpuEvent before_;                  // what an exchange waits for
  std::vector<Exchange> exchanges_;  // [kExchanges]; ticket t uses t % kExchanges
  uint32_t next_ticket_ = 0;
  size_t scratch_bytes_;
  NcclHandle handle_;
};

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host,
                                   std::unique_ptr<NcclLibrary> library, const NcclId& id,
                                   const NcclOptions& options)
    : host_(std::move(host)),
      library_(std::move(library)),
      rank_(host_->rank()),
      size_(host_->size()),
      exchanges_(kExchanges),
      scratch_bytes_(options.scratch_bytes),
      handle_(*library_, id, rank_, size_, options.limit_s) {
  const auto ranks = static_cast<size_t>(size_);
  if (ranks == 1 || scratch_bytes_ == 0) return;
  const size_t whole = ranks * std::min(scratch_bytes_, kGatherBytes);
  scratch_ = kernels::GpuBuffer(std::max(whole, scratch_bytes_ + ranks * sizeof(float)));
}

template <class Calls>
void NcclCommunicator::run_group(const char* name, Calls calls) {
  run("ncclGroupStart", [&] { return library_->group_start(); });
  try {
    calls();
  } catch (...) {
    library_->group_end();
    throw;
  }
  run(name, [&] { return library_->group_end(); });
}

// Inside a group calls only queue: their status tells of their arguments.
void NcclCommunicator::send(const void* data, size_t bytes, int peer, kernels::CudaStream stream) {
  if (bytes == 0) return;
  run("ncclSend",
      [&] { return library_->send(data, bytes, kNcclUint8, peer, handle_.get(), stream); });
}

void NcclCommunicator::recv(void* data, size_t bytes, int peer, kernels::CudaStream stream) {
  if (bytes == 0) return;
  run("ncclRecv",
      [&] { return library_->recv(data, bytes, kNcclUint8, peer, handle_.get(), stream); });
}

void NcclCommunicator::all_reduce(void* data, size_t n, DType dtype, Stream& stream) {
  const int type = nccl_type(dtype);
  if (size_ == 1 || n == 0) return;
  run("ncclAllReduce", [&] {
    return library_->all_reduce(data, data, n, type, kNcclSum, handle_.get(), stream.gpu());
  });
}

void NcclCommunicator::all_reduce_tree(float* data, size_t n, Stream& stream) {
  if (!std::has_single_bit(static_cast<unsigned>(size_)))
    throw run_error("a sum by a fixed tree needs a power of two of ranks, not {}", size_);
  if (n * sizeof(float) > scratch_bytes_)
    throw run_error("a sum over ranks of {} bytes exceeds the communicator's scratch of {} bytes",
                    n * sizeof(float), scratch_bytes_);
  if (size_ == 1 || n == 0) return;
  if (n * sizeof(float) <= kGatherBytes)
    sum_whole(data, n, stream);
  else
    sum_in_parts(data, n, stream);
}

void NcclCommunicator::sum_whole(float* data, size_t n, Stream& stream) {
  auto* all = reinterpret_cast<float*>(scratch_.data());
  all_gather(data, all, n * sizeof(float), stream);
  kernels::GpuTreeSum sum;
  sum.parts = all;
  sum.ranks = size_;
  sum.stride = n;
  sum.out = data;
  sum.n = n;
  gpu_tree_sum(sum, stream.gpu());
}

void NcclCommunicator::sum_in_parts(float* data, size_t n, Stream& stream) {
  const auto ranks = static_cast<size_t>(size_);
  const size_t part = (n + ranks - 1) / ranks;
  const auto begin = [&](int r) { return std::min(n, static_cast<size_t>(r) * part); };
  const auto bytes = [&](int r) { return (begin(r + 1) - begin(r)) * sizeof(float); };
  auto* parts = reinterpret_cast<float*>(scratch_.data());
  float* mine = data + begin(rank_);
  run_group("parts of a sum", [&] {
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      send(data + begin(peer), bytes(peer), peer, stream.gpu());
      recv(parts + static_cast<size_t>(peer) * part, bytes(rank_), peer, stream.gpu());
    }
  });
  kernels::GpuTreeSum sum;
  sum.parts = parts;
  sum.mine = mine;
  sum.rank = rank_;
  sum.ranks = size_;
  sum.stride = part;
  sum.out = mine;
  sum.n = bytes(rank_) / sizeof(float);
  gpu_tree_sum(sum, stream.gpu());
  run_group("sums of parts", [&] {
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      send(mine, bytes(rank_), peer, stream.gpu());
      recv(data + begin(peer), bytes(peer), peer, stream.gpu());
    }
  });
}

void NcclCommunicator::all_gather(const void* mine, void* all, size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  run("ncclAllGather", [&] {
    return library_->all_gather(mine, all, bytes, kNcclUint8, handle_.get(), stream.gpu());
  });
}

void NcclCommunicator::reduce_scatter(const float* in, float* out, size_t n, Stream& stream) {
  if (n == 0) return;
  run("ncclReduceScatter", [&] {
    return library_->reduce_scatter(in, out, n, kNcclFloat32, kNcclSum, handle_.get(),
                                    stream.gpu());
  });
}

void NcclCommunicator::all_to_all(const void* in, void* out, size_t bytes, Stream& stream) {
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  run_group("all to all", [&] {
    for (int step = 0; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const size_t offset = static_cast<size_t>(peer) * bytes;
      send(from + offset, bytes, peer, stream.gpu());
      recv(to + offset, bytes, peer, stream.gpu());
    }
  });
}

void NcclCommunicator::broadcast(void* data, size_t bytes, int root, Stream& stream) {
  WEFT_EXPECT(root >= 0 && root < size_);
  if (bytes == 0) return;
  run("ncclBroadcast", [&] {
    return library_->broadcast(data, data, bytes, kNcclUint8, root, handle_.get(), stream.gpu());
  });
}

Ticket NcclCommunicator::start(std::span<const Transfer> transfers, Stream& stream) {
  uint32_t tries = 0;
  while (exchanges_[next_ticket_ % kExchanges].in_flight) {
    if (++tries == kExchanges) throw run_error("{} exchanges are in flight already", kExchanges);
    ++next_ticket_;
  }
  for (const Transfer& transfer : transfers)
    WEFT_EXPECT(transfer.peer >= 0 && transfer.peer < size_);
  Exchange& exchange = exchanges_[next_ticket_ % kExchanges];
  const kernels::CudaStream own = exchange_stream_.get();
  before_.record(stream.gpu());
  before_.hold(own);
  run_group("an exchange", [&] {
    for (const Transfer& t : transfers) {
      if (t.kind == Transfer::Kind::send)
        send(t.data, t.bytes, t.peer, own);
      else
        recv(t.data, t.bytes, t.peer, own);
    }
  });
  exchange.done.record(own);
  exchange.ticket = next_ticket_++;
  exchange.in_flight = true;
  return {exchange.ticket};
}

NcclCommunicator::Exchange& NcclCommunicator::exchange_of(Ticket ticket) {
  Exchange& exchange = exchanges_[ticket.index % kExchanges];
  WEFT_EXPECT(exchange.in_flight && exchange.ticket == ticket.index);
  return exchange;
}

bool NcclCommunicator::test(Ticket ticket) {
  Exchange& exchange = exchange_of(ticket);
  handle_.poll();
  if (!exchange.done.happened()) return false;
  exchange.in_flight = false;
  return true;
}

void NcclCommunicator::wait(Ticket ticket, Stream& stream) {
  Exchange& exchange = exchange_of(ticket);
  handle_.poll();
  exchange.done.hold(stream.gpu());
  exchange.in_flight = false;
}

void NcclCommunicator::close() {
  for (const Exchange& exchange : exchanges_) WEFT_EXPECT(!exchange.in_flight);
  handle_.close();
  host_->close();
}

// What the ranks of a group tell each other before NCCL starts.
struct Introduction {
  int version = 0;
  NcclId id;  // rank 0's counts
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     const NcclOptions& options, Stream& stream) {
  std::unique_ptr<NcclLibrary> library;
  Introduction mine;
  agree_in_group(*host, stream, [&] {
    library = std::make_unique<NcclLibrary>(options.library);
    mine.version = library->version();
    if (host->rank() != 0) return;
    const int status = library->get_unique_id(&mine.id);
    if (status != kNcclSuccess)
      throw run_error("ncclGetUniqueId failed: {}", library->error_text(status));
  });
  Introduction first = mine;
  host->broadcast(&first, sizeof first, 0, stream);
  agree_in_group(*host, stream, [&] {
    if (mine.version != first.version)
      throw run_error("NCCL {} here, {} on rank 0; all ranks need the same",
                      nccl_version_text(mine.version), nccl_version_text(first.version));
  });
  return std::make_unique<NcclCommunicator>(std::move(host), std::move(library), first.id, options);
}

}  // namespace weft::parallel
