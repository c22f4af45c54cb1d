// Collectives and point-to-point messages among the ranks of one group, ordered with a Stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "kernels/tensor.h"
#include "runtime/base/dtype.h"

namespace weft::parallel {

struct Transfer {
  enum class Kind : uint8_t { send, recv };
  Kind kind = Kind::send;
  int peer = 0;  // rank in the group
  void* data = nullptr;
  size_t bytes = 0;
};

// Names an exchange that was started; complete when wait() has returned.
struct Ticket {
  uint32_t index = 0;
};

// A sum over ranks that joins the residual stream, and the norm that may follow:
// residual += sum of partial (+ bias), rounded once; normed = RMSNorm(residual).
struct ResidualSum {
  const float* partial = nullptr;  // [tokens, hidden] of this rank
  kernels::In bias;                // [hidden] or null
  kernels::Out residual;           // [tokens, hidden], the same on every rank
  kernels::In norm_weight;         // [hidden] or null
  kernels::Out normed;             // [tokens, hidden] where norm_weight is given
  float eps = 1e-6f;
  size_t tokens = 0;
  size_t hidden = 0;
  bool dependent_launch = false;  // may start before the kernel before has ended
};

// Every rank of the group calls the same operations in the same order with the same sizes; all
// sizes may differ from call to call. Buffers never overlap. Operations throw Error when a peer
// fails. Messages between a pair keep their order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sum in place over ranks, in an order of the implementation's choice.
  virtual void all_reduce(void* data, size_t n, DType dtype, kernels::Stream& stream) = 0;
  // Sum in place by a fixed binary tree over ranks (partners rank^1, rank^2, rank^4, …; the lower
  // rank's sum on the left): the same bits on every rank and in every layout. size() is a power
  // of 2.
  virtual void all_reduce_tree(float* data, size_t n, kernels::Stream& stream) = 0;
  // A sum by all_reduce_tree's tree and what follows it as one operation, `partial` left as it is.
  // False, and nothing done, where this implementation has no such operation for the size (the same
  // on every rank): the caller sums, then adds.
  virtual bool all_reduce_residual(const ResidualSum&, kernels::Stream&) { return false; }
  // all: [size, bytes]; `mine` may be the own part of `all`.
  virtual void all_gather(const void* mine, void* all, size_t bytes, kernels::Stream& stream) = 0;
  // in: [size, n]; out: [n], the sum over ranks of part rank().
  virtual void reduce_scatter(const float* in, float* out, size_t n, kernels::Stream& stream) = 0;
  // in, out: [size, bytes].
  virtual void all_to_all(const void* in, void* out, size_t bytes, kernels::Stream& stream) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, kernels::Stream& stream) = 0;

  // Starts all the transfers as one group. Their memory belongs to the exchange until wait().
  virtual Ticket start(std::span<const Transfer> transfers, kernels::Stream& stream) = 0;
  // True once the exchange has completed (its ticket is spent then); never blocks.
  virtual bool test(Ticket ticket) = 0;
  virtual void wait(Ticket ticket, kernels::Stream& stream) = 0;
  void exchange(std::span<const Transfer> transfers, kernels::Stream& stream) {
    wait(start(transfers, stream), stream);
  }

  // True where operations may be recorded into a graph.
  virtual bool capturable() const = 0;
  // Of sums over ranks: the longest, in bytes, that may be recorded.
  virtual size_t capturable_sum_bytes() const { return capturable() ? SIZE_MAX : 0; }
  // For a host that waits for a GPU's work by other means: throws Error where the group has failed
  // meanwhile. Never blocks.
  virtual void poll() {}
  // After a failure here or in a peer: frees what this rank's GPU holds up while it waits for
  // others, so that its memory can be let go of. Nothing but the destructor may follow. Local.
  virtual void abort() {}
  // Ends the group in order, on every rank; destructors never communicate.
  virtual void close() = 0;
};

}  // namespace weft::parallel
