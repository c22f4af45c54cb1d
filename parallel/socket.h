// TCP sockets as owned descriptors, and this host's addresses: what guardians find each other by.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft::parallel {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Listener {
  Socket socket;
  uint16_t port = 0;
};

// On all addresses of this host, at a port that the system chooses; accept() never blocks. Throws
// Error.
Listener listen_anywhere();

// This host's addresses as others may reach it, numeric; none of the loopback's.
std::vector<std::string> host_addresses();

// Blocks for at most timeout_ms, as do reads and writes on what is returned. Throws Error with
// address, port and reason.
Socket connect_to(const std::string& address, uint16_t port, int timeout_ms);

void never_block(const Socket& socket);

}  // namespace weft::parallel
