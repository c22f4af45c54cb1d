// Flat messages between ranks of one build: plain values and arrays, one after the other, checked
// against the message's length on both sides.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/base/error.h"

namespace weft::runtime {

class WireWriter {
 public:
  explicit WireWriter(std::span<std::byte> to) : to_(to) {}
  template <class T>
  void value(const T& x) {
    put(&x, sizeof(T));
  }
  template <class T>
  void array(const T* data, size_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(data, n * sizeof(T));
  }
  size_t bytes() const { return used_; }

 private:
  void put(const void* data, size_t bytes) {
    if (bytes > to_.size() - used_)
      throw run_error("a message of {} bytes is longer than its buffer of {}", used_ + bytes,
                      to_.size());
    if (bytes > 0) std::memcpy(to_.data() + used_, data, bytes);
    used_ += bytes;
  }

  std::span<std::byte> to_;
  size_t used_ = 0;
};

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> from) : from_(from) {}
  template <class T>
  T value() {
    T x;
    get(&x, sizeof(T));
    return x;
  }
  // Refills a vector within its capacity; a count beyond it is a damaged message.
  template <class T>
  void array(std::vector<T>& to, size_t n) {
    if (n > to.capacity())
      throw run_error("a message announces {} items of at most {}", n, to.capacity());
    to.resize(n);
    get(to.data(), n * sizeof(T));
  }

 private:
  void get(void* data, size_t bytes) {
    if (bytes > from_.size() - used_)
      throw run_error("a message of {} bytes ends before byte {}", from_.size(), used_ + bytes);
    if (bytes > 0) std::memcpy(data, from_.data() + used_, bytes);
    used_ += bytes;
  }

  std::span<const std::byte> from_;
  size_t used_ = 0;
};

}  // namespace weft::runtime
