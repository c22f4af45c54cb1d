// HMAC against the vectors of RFC 4231, and comparison of tags.
#include "runtime/base/hmac.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::string hex_of(const Tag& tag) {
  return to_hex({reinterpret_cast<const char*>(tag.data()), tag.size()});
}

TEST(Hmac, AgreesWithTheStandard) {
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, TagsAreEqualOnlyInAllBytes) {
  const Tag tag = hmac_sha256("key", "text");
  EXPECT_TRUE(equal_tags(tag, hmac_sha256("key", "text")));
  for (size_t i = 0; i < tag.size(); ++i) {
    Tag other = tag;
    other[i] ^= 0x80;
    EXPECT_FALSE(equal_tags(tag, other)) << "byte " << i;
  }
}

TEST(Hmac, RandomBytesDiffer) {
  EXPECT_EQ(random_bytes(33).size(), 33u);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

}  // namespace
}  // namespace weft
