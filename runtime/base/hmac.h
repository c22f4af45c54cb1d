// HMAC-SHA-256 and secrets, by the system's crypto library: who doesn't know the secret can neither
// make a message nor change one unseen.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace weft {

using Tag = std::array<unsigned char, 32>;

// HMAC (RFC 2104) of `bytes` with SHA-256; the key may have any length. Throws Error where the
// library refuses.
Tag hmac_sha256(std::string_view key, std::string_view bytes);

// Takes as long whether they differ early or late.
bool equal_tags(const Tag& a, const Tag& b);

// n bytes from the system's source of randomness; throws Error where there is none.
std::string random_bytes(size_t n);

// Two lower-case digits a byte.
std::string to_hex(std::string_view bytes);

}  // namespace weft
