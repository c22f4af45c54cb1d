// A bar on the terminal while something long runs; silent where stderr is no terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace weft {

// "loading  1.20 GiB of 2.70 GiB  44%  [########          ]  1.31 GiB/s". Drawn over itself at most
// ten times a second, and wiped when it goes.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(size_t done_bytes, size_t total_bytes);

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool on_terminal_;
  bool drawn_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point last_;
};

// One line of the bar, `width` columns of it at most.
std::string progress_line(const std::string& what, size_t done_bytes, size_t total_bytes,
                          double seconds, size_t width);

}  // namespace weft
