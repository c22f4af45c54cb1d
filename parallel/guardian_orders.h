// What a rank tells its guardian once MPI knows who is who, over the socket that fork() left
// between them, and the guardian's answer. Both trust each other.
#pragma once

#include <cstdint>

#include "parallel/fixed_text.h"

namespace weft::parallel {

struct GuardianOrders {
  bool rename = false;  // the others know this guardian already: its rank has another name
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
