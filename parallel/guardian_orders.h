// What a rank tells its guardian once MPI knows who is who, over the socket that fork() left
// between them, and the guardian's answer. Both trust each other.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::parallel {

template <size_t N>
struct FixedText {
  std::array<char, N> bytes{};
  void set(std::string_view text) {
    text = text.substr(0, N - 1);
    bytes = {};
    for (size_t i = 0; i < text.size(); ++i) bytes[i] = text[i];
  }
  std::string get() const { return bytes.data(); }
};

struct GuardianOrders {
  uint32_t rank = 0;
  uint32_t size = 1;
  uint16_t lead_port = 0;          // followers
  bool one_host = true;            // the loopback reaches every rank
  bool speaks = false;             // says it where rank 0's guardian can't
  FixedText<128> secret;           // printable
  FixedText<512> name;             // "rank 3 (host nodeB, CPU)"
  FixedText<2048> lead_addresses;  // separated by blanks
};

struct GuardianAnswer {
  bool good = false;
  uint16_t port = 0;     // rank 0's guardian
  FixedText<2048> text;  // its addresses, or what went wrong
};

}  // namespace weft::parallel
