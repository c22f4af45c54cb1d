// poll() before every piece. Pipes take a piece of PIPE_BUF bytes or less at once where they take
// any; the file is not made non-blocking, since other processes share it.
#include "parallel/bounded_write.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "parallel/guardian_page.h"

namespace weft::parallel {

void write_within(int fd, std::string_view text, int limit_ms) {
  const int64_t end_ns = monotonic_ns() + limit_ms * int64_t{1'000'000};
  while (!text.empty()) {
    const int64_t left_ms = (end_ns - monotonic_ns()) / 1'000'000;
    pollfd ready{fd, POLLOUT, 0};
    const int n_ready = left_ms < 0 ? 0 : poll(&ready, 1, static_cast<int>(left_ms));
    if (n_ready < 0 && errno == EINTR) continue;
    if (n_ready <= 0) return;
    const ssize_t n = write(fd, text.data(), text.substr(0, PIPE_BUF).size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace weft::parallel
