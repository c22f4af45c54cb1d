// A communicator of GPUs whose short sums go through peer memory and all else through another one.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "parallel/communicator.h"
#include "parallel/peer_memory.h"

namespace weft::parallel {

// Messages up to one_shot_bytes are summed in one step, up to two_shot_bytes in two, longer ones by
// the other communicator.
struct PeerLimits {
  size_t one_shot_bytes = 0;
  size_t two_shot_bytes = 0;
  bool operator==(const PeerLimits&) const = default;
};

// Until they are measured, and where GPUs are shared, so that measuring means nothing. One step and
// two take equally long on one H200 at 50 KiB for 2 ranks and at 100 KiB for 8 (gpu_peer_bench).
PeerLimits default_peer_limits();
// Words of a half for messages up to these.
size_t peer_half_words(int ranks, const PeerLimits& largest);

// The slowest rank's times of one message.
struct PeerTiming {
  size_t bytes = 0;
  double one_shot_us = 0;
  double two_shot_us = 0;
  double other_us = 0;  // the other communicator's all_reduce
};
// Up to the first message at which the step ahead was quicker, `timings` from short to long.
PeerLimits choose_peer_limits(std::span<const PeerTiming> timings);

class PeerCommunicator final : public Communicator {
 public:
  // `memory` was made with `host`, which is kept and closed with this communicator, as is `other`;
  // all of the same ranks.
  PeerCommunicator(std::unique_ptr<Communicator> other, std::unique_ptr<Communicator> host,
                   std::unique_ptr<PeerMemory> memory, kernels::Stream& stream);

  const PeerLimits& limits() const { return limits_; }
  // No more than the memory holds.
  void set_limits(const PeerLimits& limits);
  // Times both ways and the other communicator's over powers of two from 4 KiB to what the memory
  // holds, and takes the limits from that. A collective outside graphs.
  void measure_limits();

  int rank() const override { return other_->rank(); }
  int size() const override { return other_->size(); }
  void all_reduce(void* data, size_t n, DType dtype, kernels::Stream& stream) override;
  void all_reduce_tree(float* data, size_t n, kernels::Stream& stream) override;
  bool all_reduce_residual(const ResidualSum& args, kernels::Stream& stream) override;
  void all_gather(const void* mine, void* all, size_t bytes, kernels::Stream& stream) override;
  void reduce_scatter(const float* in, float* out, size_t n, kernels::Stream& stream) override;
  void all_to_all(const void* in, void* out, size_t bytes, kernels::Stream& stream) override;
  void broadcast(void* data, size_t bytes, int root, kernels::Stream& stream) override;
  Ticket start(std::span<const Transfer> transfers, kernels::Stream& stream) override;
  bool test(Ticket ticket) override { return other_->test(ticket); }
  void wait(Ticket ticket, kernels::Stream& stream) override { other_->wait(ticket, stream); }
  bool capturable() const override { return other_->capturable(); }
  size_t capturable_sum_bytes() const override;
  void poll() override;
  void abort() override;
  void close() override;

 private:
  bool sums(size_t bytes) const { return bytes <= limits_.two_shot_bytes; }
  void sum(void* data, size_t n, DType dtype, bool two_shot, kernels::Stream& stream);
  double slowest_us(double us);

  std::unique_ptr<Communicator> other_;
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<PeerMemory> memory_;
  kernels::Stream stream_;
  PeerLimits limits_;
};

}  // namespace weft::parallel
