// A TCP connection between two guardians: its handshake, which proves on both sides that the other
// knows the job's secret, then frames in both directions without ever blocking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/guardian_frame.h"
#include "parallel/socket.h"

namespace weft::parallel {

class GuardianLink {
 public:
  GuardianLink(Socket socket, const FrameReader& in, const FrameWriter& out)
      : socket_(std::move(socket)), in_(in), out_(out) {}

  int fd() const { return socket_.fd(); }
  // Queued where the network does not take it at once; a connection that is gone shows in
  // receive().
  void send(const Frame& frame);
  void flush();
  bool queued() const { return !to_send_.empty(); }
  // Appends the whole frames that have come; false where the connection has ended or the bytes were
  // not the other guardian's.
  bool receive(std::vector<Frame>& frames);
  // No more is sent; the other side sees the end of the stream after all frames.
  void finish();

 private:
  Socket socket_;
  FrameReader in_;
  FrameWriter out_;
  std::string to_send_;
};

// A follower's side, blocking for at most timeout_ms a step: connects, proves, is proved to. Throws
// Error. `lead_name` is what rank 0's guardian calls its rank.
GuardianLink greet_lead(const std::string& address, uint16_t port, std::string_view secret,
                        uint32_t rank, const std::string& name, int timeout_ms,
                        std::string& lead_name);

// A connection that rank 0's guardian accepted and knows nothing of yet. Whoever it is gets a
// nonce, and is heard as long as what it says fits.
class Stranger {
 public:
  Stranger(Socket socket, std::string_view secret, int64_t now_ns);

  int fd() const { return socket_.fd(); }
  int64_t since_ns() const { return since_ns_; }
  enum class State { unknown, proved, refused };
  State hear();
  // Once proved: the hello, and the connection, whose welcome is still to be sent.
  const Frame& hello() const { return *hello_; }
  GuardianLink take();

 private:
  Socket socket_;
  std::string secret_;
  int64_t since_ns_;
  std::string nonce_;        // ours
  std::string their_nonce_;  // as far as it has come
  std::optional<FrameReader> in_;
  std::optional<Frame> hello_;
};

}  // namespace weft::parallel
