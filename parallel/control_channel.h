// Small messages from one rank to others, in order: batches from rank 0 to all, tokens from the
// last stage back. Both sides use rings of buffers that are taken once; receives are posted ahead,
// so a message finds its place when it arrives.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/mpi_session.h"
#include "runtime/base/pages.h"

namespace weft::parallel {

// The root's end.
class ControlSender {
 public:
  ControlSender(MPI_Comm comm, std::span<const int> receivers, size_t max_bytes, size_t depth);

  // The next buffer, of max_bytes; waits gently where the message that was last sent from it, depth
  // messages ago, has not left yet.
  std::span<std::byte> buffer();
  // Sends the first `bytes` of buffer() to all receivers.
  void send(size_t bytes);
  // Waits until all messages have left.
  void close();

 private:
  std::span<MPI_Request> requests(size_t slot);

  MPI_Comm comm_;
  std::vector<int> receivers_;
  size_t max_bytes_;
  size_t depth_;
  Pages buffers_;                      // [depth, max_bytes]
  std::vector<MPI_Request> requests_;  // [depth, receivers]
  size_t n_sent_ = 0;
};

// A receiver's end. At most `depth` messages are held, read but not released.
class ControlReceiver {
 public:
  ControlReceiver(MPI_Comm comm, int root, size_t max_bytes, size_t depth);

  // The next message in order; its memory stays as it is until its release().
  std::span<const std::byte> wait();
  std::optional<std::span<const std::byte>> test();
  // Gives the oldest message's buffer back.
  void release();
  // Withdraws the receives that are posted. All messages that matter have been read.
  void close();

 private:
  std::byte* buffer(size_t slot) const { return buffers_.data() + slot * max_bytes_; }
  void post(size_t slot);

  MPI_Comm comm_;
  int root_;
  size_t max_bytes_;
  size_t depth_;
  Pages buffers_;                      // [depth, max_bytes]
  std::vector<MPI_Request> requests_;  // [depth]
  size_t n_read_ = 0;
  size_t n_released_ = 0;
};

// One rank's ends of a channel: on the root a sender, on each receiver a receiver (the root may be
// among them), elsewhere neither.
class ControlChannel {
 public:
  // A collective call of all ranks of the world, with the same arguments.
  ControlChannel(const MpiSession& session, int root, std::span<const int> receivers,
                 size_t max_bytes, size_t depth);
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  ControlSender& sender();
  ControlReceiver& receiver();
  // On all ranks, in order; the destructor does not communicate.
  void close();

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::unique_ptr<ControlSender> sender_;
  std::unique_ptr<ControlReceiver> receiver_;
};

}  // namespace weft::parallel
