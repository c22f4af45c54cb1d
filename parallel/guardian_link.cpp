// The handshake: lead's magic and nonce, follower's nonce and hello, lead's welcome.
#include "parallel/guardian_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr std::string_view kGreeting = "weft-g1\n";

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw system_error("the other side does not listen", errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

std::string read_some(int fd, size_t most) {
  std::string bytes(most, '\0');
  for (;;) {
    const ssize_t n = recv(fd, bytes.data(), most, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) throw run_error("the other side hung up");
    if (n < 0) throw run_error("the other side does not answer");
    bytes.resize(static_cast<size_t>(n));
    return bytes;
  }
}

std::string read_exactly(int fd, size_t n) {
  std::string bytes;
  while (bytes.size() < n) bytes += read_some(fd, n - bytes.size());
  return bytes;
}

}  // namespace

void GuardianLink::send(const Frame& frame) {
  to_send_ += out_.seal(frame);
  flush();
}

void GuardianLink::flush() {
  while (!to_send_.empty()) {
    const ssize_t n = ::send(socket_.fd(), to_send_.data(), to_send_.size(), MSG_NOSIGNAL);
    if (n < 0 && would_block()) return;
    if (n <= 0) {
      to_send_.clear();  // the end of the stream says it
      return;
    }
    to_send_.erase(0, static_cast<size_t>(n));
  }
}

bool GuardianLink::receive(std::vector<Frame>& frames) {
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t n = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
    if (n < 0 && would_block()) return true;
    if (n <= 0) return false;
    in_.push({bytes.data(), static_cast<size_t>(n)});
    try {
      while (auto frame = in_.next()) frames.push_back(std::move(*frame));
    } catch (const Error&) {
      return false;
    }
  }
}

void GuardianLink::finish() {
  flush();
  shutdown(socket_.fd(), SHUT_WR);
}

GuardianLink greet_lead(const std::string& address, uint16_t port, std::string_view secret,
                        uint32_t rank, const std::string& name, int timeout_ms,
                        std::string& lead_name) {
  Socket socket = connect_to(address, port, timeout_ms);
  const std::string greeting = read_exactly(socket.fd(), kGreeting.size() + kNonceBytes);
  if (!greeting.starts_with(kGreeting)) throw run_error("no guardian answers there");
  const std::string lead_nonce = greeting.substr(kGreeting.size());
  const std::string nonce = random_bytes(kNonceBytes);
  FrameWriter out(stream_key(secret, "follower", lead_nonce, nonce));
  FrameReader in(stream_key(secret, "lead", lead_nonce, nonce));
  send_all(socket.fd(), nonce + out.seal({FrameKind::hello, 0, rank, 0, name}));
  std::optional<Frame> welcome;
  while (!(welcome = in.next())) in.push(read_some(socket.fd(), 4096));
  if (welcome->kind != FrameKind::welcome) throw run_error("it does not welcome this rank");
  lead_name = welcome->text;
  never_block(socket);
  return {std::move(socket), in, out};
}

Stranger::Stranger(Socket socket, std::string_view secret, int64_t now_ns)
    : socket_(std::move(socket)),
      secret_(secret),
      since_ns_(now_ns),
      nonce_(random_bytes(kNonceBytes)) {
  never_block(socket_);
  const std::string greeting = std::string(kGreeting) + nonce_;
  // An empty socket takes these few bytes at once; one that does not is refused by its silence.
  (void)!::send(socket_.fd(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
}

Stranger::State Stranger::hear() {
  std::array<char, 1024> bytes{};
  const ssize_t n = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
  if (n < 0 && would_block()) return State::unknown;
  if (n <= 0) return State::refused;
  std::string_view heard(bytes.data(), static_cast<size_t>(n));
  if (!in_) {
    const std::string_view more = heard.substr(0, kNonceBytes - their_nonce_.size());
    their_nonce_ += more;
    heard.remove_prefix(more.size());
    if (their_nonce_.size() < kNonceBytes) return State::unknown;
    in_.emplace(stream_key(secret_, "follower", nonce_, their_nonce_));
  }
  in_->push(heard);
  try {
    hello_ = in_->next();
  } catch (const Error&) {
    return State::refused;
  }
  if (!hello_) return State::unknown;
  return hello_->kind == FrameKind::hello ? State::proved : State::refused;
}

GuardianLink Stranger::take() {
  return {std::move(socket_), *in_, FrameWriter(stream_key(secret_, "lead", nonce_, their_nonce_))};
}

}  // namespace weft::parallel
