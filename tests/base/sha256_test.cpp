// Known answers of FIPS 180-2, and lengths around the padding's edge.
#include "runtime/base/sha256.h"

#include <gtest/gtest.h>

#include <set>

namespace weft {
namespace {

TEST(Sha256, GivesTheStandardsAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, SeesEveryByteAndTheLength) {
  std::set<std::string> seen;
  for (size_t n = 0; n <= 130; ++n) seen.insert(sha256_hex(std::string(n, '\0')));
  EXPECT_EQ(seen.size(), 131u);
  EXPECT_NE(sha256_hex(std::string_view("a\0b", 3)), sha256_hex(std::string_view("a\0c", 3)));
}

}  // namespace
}  // namespace weft
