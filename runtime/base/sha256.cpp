// SHA-256 by the system's crypto library.
#include "runtime/base/sha256.h"

#include <fmt/format.h>
#include <openssl/sha.h>

namespace weft {

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string hex;
  for (unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace weft
