// Philox4x32-10: ten rounds of two 32 × 32 → 64 bit products.
#include "kernels/sampling.h"

namespace weft::kernels {

Philox philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53u} * c0;
    const uint64_t odd = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(odd >> 32) ^ c1 ^ key0;
    c2 = static_cast<uint32_t>(even >> 32) ^ c3 ^ key1;
    c1 = static_cast<uint32_t>(odd);
    c3 = static_cast<uint32_t>(even);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace weft::kernels
