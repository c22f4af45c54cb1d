// Owned, zeroed, page-aligned memory for large arenas (weights, KV cache, activations).
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace weft {

// Anonymous memory, asked for in huge pages where the kernel grants them. Pages are backed on first
// touch, so the first thread that writes decides the NUMA node. Throws Error with the size.
class Pages {
 public:
  Pages() = default;
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Huge pages for a part of it, or none: advice for pages that are not backed yet.
  static void advise_huge(std::span<std::byte> part, bool huge);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace weft
