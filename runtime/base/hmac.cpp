// HMAC and randomness by libcrypto.
#include "runtime/base/hmac.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "runtime/base/error.h"

namespace weft {

Tag hmac_sha256(std::string_view key, std::string_view bytes) {
  Tag tag{};
  unsigned int length = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(bytes.data());
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text, bytes.size(), tag.data(),
           &length) == nullptr ||
      length != tag.size())
    throw run_error("libcrypto computes no HMAC-SHA-256");
  return tag;
}

bool equal_tags(const Tag& a, const Tag& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(size_t n) {
  std::string bytes(n, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(n)) != 1)
    throw run_error("libcrypto has no random bytes");
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

}  // namespace weft
