// A text of bounded length inside a struct that is copied as bytes: between processes of a host, or
// over MPI.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace weft::parallel {

template <size_t N>
struct FixedText {
  std::array<char, N> bytes{};
  // Longer text is cut.
  void set(std::string_view text) {
    text = text.substr(0, N - 1);
    bytes = {};
    for (size_t i = 0; i < text.size(); ++i) bytes[i] = text[i];
  }
  std::string get() const { return bytes.data(); }
};

}  // namespace weft::parallel
