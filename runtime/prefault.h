// Backs fresh memory with pages a little ahead of whoever fills it, on a thread of its own: zeroing
// pages, and waiting for a virtual machine's host to hand them out, then goes on beside the disk's
// reads instead of between them.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

namespace weft::runtime {

class Prefault {
 public:
  // Areas in the order in which they will be filled. Where the kernel can't do it, nothing happens:
  // pages are then backed as they are written.
  explicit Prefault(std::vector<std::span<std::byte>> areas);

  // `fraction` of all the areas' bytes has been filled, 0 to 1.
  void reached(double fraction);

 private:
  void run(const std::stop_token& stop, const std::vector<std::span<std::byte>>& areas);

  size_t total_ = 0;            // bytes
  std::atomic<size_t> filled_;  // bytes
  std::jthread thread_;
};

}  // namespace weft::runtime
