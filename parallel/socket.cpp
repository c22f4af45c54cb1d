// The system's socket calls, each checked.
#include "parallel/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

// Both IP versions where the host has them, else version 4 alone.
bool bind_anywhere(const Socket& socket, int family) {
  if (!socket.open()) return false;
  if (family == AF_INET6) {
    const int no = 0;
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    return bind(socket.fd(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0;
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  return bind(socket.fd(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0;
}

uint16_t port_of(const Socket& socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof(bound);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0)
    throw system_error("getsockname", errno);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// Addresses that mean the same host to others: no loopback, no link-local ones.
bool reachable(const ifaddrs& one) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0 ||
      (one.ifa_flags & IFF_LOOPBACK) != 0)
    return false;
  if (one.ifa_addr->sa_family == AF_INET) return true;
  if (one.ifa_addr->sa_family != AF_INET6) return false;
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(one.ifa_addr)->sin6_addr);
}

std::string numeric(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes =
      address.sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  const char* form = inet_ntop(address.sa_family, bytes, text.data(), text.size());
  return form == nullptr ? std::string() : std::string(form);
}

// 0, or the errno of a connection that failed or took too long.
int finish_connect(int fd, int timeout_ms) {
  pollfd ready{fd, POLLOUT, 0};
  if (poll(&ready, 1, timeout_ms) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t bytes = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

void limit_waits(int fd, int timeout_ms) {
  const timeval limit{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Listener listen_anywhere() {
  for (const int family : {AF_INET6, AF_INET}) {
    Socket one(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!bind_anywhere(one, family) || listen(one.fd(), SOMAXCONN) != 0) continue;
    const uint16_t port = port_of(one);
    return {std::move(one), port};
  }
  throw system_error("cannot listen on a TCP port", errno);
}

std::vector<std::string> host_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw system_error("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<std::string> all;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next)
    if (reachable(*one)) all.push_back(numeric(*one->ifa_addr));
  return all;
}

Socket connect_to(const std::string& address, uint16_t port, int timeout_ms) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    throw run_error("{} is no numeric address", address);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Socket one(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!one.open()) throw system_error("socket", errno);
  int error = connect(one.fd(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = finish_connect(one.fd(), timeout_ms);
  if (error != 0) throw system_error(fmt::format("{} port {}", address, port), error);
  const int flags = fcntl(one.fd(), F_GETFL);
  if (flags < 0 || fcntl(one.fd(), F_SETFL, flags & ~O_NONBLOCK) != 0)
    throw system_error("fcntl", errno);
  limit_waits(one.fd(), timeout_ms);
  return one;
}

void never_block(const Socket& socket) {
  const int flags = fcntl(socket.fd(), F_GETFL);
  if (flags < 0 || fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw system_error("fcntl", errno);
  const int yes = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

}  // namespace weft::parallel
