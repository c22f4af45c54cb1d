// A bar on the terminal while something long runs.
#include "runtime/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "runtime/base/text.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kBetween(100);
constexpr size_t kBarWidth = 24;

size_t terminal_width() {
  struct winsize size {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string progress_line(const std::string& what, size_t done_bytes, size_t total_bytes,
                          double seconds, size_t width) {
  const size_t done = std::min(done_bytes, total_bytes);
  const double part =
      total_bytes == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total_bytes);
  const auto filled = static_cast<size_t>(part * kBarWidth);
  std::string line = fmt::format("{}  {} of {}  {:3.0f}%  [{}{}]", what, human_bytes(done),
                                 human_bytes(total_bytes), 100 * part, std::string(filled, '#'),
                                 std::string(kBarWidth - filled, ' '));
  if (seconds > 0)
    line += fmt::format("  {}/s",
                        human_bytes(static_cast<size_t>(static_cast<double>(done) / seconds)));
  return line.substr(0, width);
}

Progress::Progress(std::string what)
    : what_(std::move(what)), on_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void Progress::show(size_t done_bytes, size_t total_bytes) {
  if (!on_terminal_) return;
  const auto now = Clock::now();
  if (drawn_ && now - last_ < kBetween) return;
  const std::chrono::duration<double> taken = now - started_;
  const std::string line =
      progress_line(what_, done_bytes, total_bytes, taken.count(), terminal_width() - 1);
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
  last_ = now;
}

}  // namespace weft
