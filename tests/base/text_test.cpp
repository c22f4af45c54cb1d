// Helpers for texts: nearest names, whole numbers, sizes, and which bytes are UTF-8.
#include "runtime/base/text.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

#include "runtime/base/error.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 4> kKeys = {"layers", "layout", "tp", "activations"};

TEST(Nearest, FindsEveryKindOfSlip) {
  EXPECT_EQ(nearest("layers", kKeys), "layers");
  EXPECT_EQ(nearest("laers", kKeys), "layers");              // a letter is missing
  EXPECT_EQ(nearest("layerss", kKeys), "layers");            // one too many
  EXPECT_EQ(nearest("leyers", kKeys), "layers");             // another one
  EXPECT_EQ(nearest("alyers", kKeys), "layers");             // two swapped
  EXPECT_EQ(nearest("aktivashions", kKeys), "activations");  // several in a long name
}

TEST(Nearest, LeavesWhatIsFarAway) {
  EXPECT_EQ(nearest("quantize", kKeys), "");
  EXPECT_EQ(nearest("", kKeys), "");
  EXPECT_EQ(nearest("xy", kKeys), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'l'), kKeys), "");  // and does not spend minutes on it
  EXPECT_EQ(nearest("tp", {}), "");
}

TEST(Nearest, ASwapIsOneSlipAndTwoLettersAreTwo) {
  const std::array<std::string_view, 1> names = {"abc"};
  EXPECT_EQ(nearest("acb", names), "abc");
  EXPECT_EQ(nearest("axy", names), "");
}

TEST(DidYouMean, IsAPhraseOrNothing) {
  EXPECT_EQ(did_you_mean("laers", kKeys), " (did you mean \"layers\"?)");
  EXPECT_EQ(did_you_mean("zzzzzz", kKeys), "");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("4x2,2x1", ','), (std::vector<std::string>{"4x2", "2x1"}));
  EXPECT_EQ(split(",a,,", ','), (std::vector<std::string>{"", "a", "", ""}));
  EXPECT_EQ(split("", ','), std::vector<std::string>{""});
}

TEST(HumanBytes, ChangesUnitsAtPowersOf1024) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(12u << 20), "12.0 MiB");
  EXPECT_EQ(human_bytes(size_t{3} << 29), "1.50 GiB");
}

TEST(ParseCount, TakesWholeNumbersUpToALimit) {
  EXPECT_EQ(parse_count("0", "tp", 8), 0u);
  EXPECT_EQ(parse_count("8", "tp", 8), 8u);
  EXPECT_EQ(parse_count("007", "tp", 8), 7u);
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  EXPECT_EQ(parse_count("18446744073709551615", "seed", kMost), kMost);
}

TEST(ParseCount, RefusesTheRestByName) {
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "1.0", "1e3", "0x1", "nine", "9", "1\n",
                           "18446744073709551616", "99999999999999999999999"}) {
    try {
      parse_count(text, "--tp", 8);
      ADD_FAILURE() << "took \"" << text << "\"";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), fmt::format("--tp: \"{}\" is not a whole number from 0 to 8", text));
      EXPECT_EQ(error.status(), 2);
    }
  }
}

// The encoding of a code point, by the definition's table; surrogates too, which are not UTF-8.
std::string encoded(uint32_t c) {
  const auto low = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3f)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), low(0)};
  if (c < 0x10000) return {static_cast<char>(0xe0 | c >> 12), low(6), low(0)};
  return {static_cast<char>(0xf0 | c >> 18), low(12), low(6), low(0)};
}

// By decoding to a code point and encoding it again: one character of exactly these bytes.
bool is_one_character(std::string_view s) {
  const auto lead = static_cast<unsigned char>(s[0]);
  uint32_t c = s.size() == 1 ? lead : lead & (0x7fu >> s.size());
  for (size_t i = 1; i < s.size(); ++i) c = c << 6 | (static_cast<unsigned char>(s[i]) & 0x3fu);
  const bool surrogate = c >= 0xd800 && c < 0xe000;
  return c <= 0x10ffff && !surrogate && encoded(c) == s;
}

TEST(IsUtf8, TakesEveryCharacterButSurrogates) {
  std::string all;
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    const bool surrogate = c >= 0xd800 && c < 0xe000;
    ASSERT_EQ(is_utf8(encoded(c)), !surrogate) << std::hex << c;
    if (!surrogate) all += encoded(c);
  }
  EXPECT_TRUE(is_utf8(all));
  EXPECT_TRUE(is_utf8(""));
  EXPECT_FALSE(is_utf8(encoded(0x110000)));
}

TEST(IsUtf8, AllPairsOfBytes) {
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) {
      const std::string s = {static_cast<char>(a), static_cast<char>(b)};
      ASSERT_EQ(is_utf8(s), (a < 0x80 && b < 0x80) || is_one_character(s)) << a << ' ' << b;
    }
}

TEST(IsUtf8, AllSecondBytesOfLongCharacters) {
  for (int a = 0xe0; a < 256; ++a)
    for (int b = 0; b < 256; ++b)
      for (const int c : {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff}) {
        std::string s = {static_cast<char>(a), static_cast<char>(b), static_cast<char>(c)};
        ASSERT_EQ(is_utf8(s), is_one_character(s)) << a << ' ' << b << ' ' << c;
        s += '\x80';
        ASSERT_EQ(is_utf8(s), is_one_character(s)) << a << ' ' << b << ' ' << c << " 128";
      }
}

TEST(IsUtf8, RefusesCharactersCutAtTheEnd) {
  for (const uint32_t c : {0xe9u, 0x4e2du, 0x1f600u}) {
    const std::string whole = encoded(c);
    for (size_t n = 1; n < whole.size(); ++n)
      EXPECT_FALSE(is_utf8(std::string(1, 'a').append(whole, 0, n)));
  }
}

TEST(HumanCount, InBillionsAndMillions) {
  EXPECT_EQ(human_count(250), "250");
  EXPECT_EQ(human_count(3'620'096), "3.62 M");
  EXPECT_EQ(human_count(33'340'000'000), "33.34 B");
}

}  // namespace
}  // namespace weft
