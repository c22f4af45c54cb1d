// Strictness of the YAML reader: places of errors, and files made to harm.
#include "planner/yaml_reader.h"

#include <chrono>

#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

std::string error_in(const std::string& text) {
  return error_of([&] { parse_yaml(text, "f.yaml"); });
}

TEST(YamlReader, KeepsOrderPlacesAndQuotes) {
  const YamlNode root = parse_yaml("b: [1, \"2\"]\na:\n  c: ~\n", "f.yaml");
  ASSERT_EQ(root.items.size(), 2u);
  EXPECT_EQ(root.items[0].key, "b");
  EXPECT_EQ(root.items[0].items[0].text, "1");
  EXPECT_FALSE(root.items[0].items[0].quoted);
  EXPECT_TRUE(root.items[0].items[1].quoted);
  const YamlNode& c = root.items[1].items[0];
  EXPECT_EQ(c.kind, YamlNode::Kind::null);
  EXPECT_EQ(c.key, "c");
  EXPECT_EQ(c.key_line, 3u);
  EXPECT_EQ(c.key_column, 3u);
}

TEST(YamlReader, RefusesWhatCouldSurprise) {
  EXPECT_SAYS(error_in("a: &x 1\nb: 2\n"), "f.yaml:1:4: anchors");
  EXPECT_SAYS(error_in("a: 1\nb: *x\n"), "f.yaml:2:4");
  EXPECT_SAYS(error_in("a: 1\nb: 2\na: 3\n"), "f.yaml:3:1: key \"a\" is there twice");
  EXPECT_SAYS(error_in("a: !!str 1\n"), "tags (tag:yaml.org,2002:str)");
  EXPECT_SAYS(error_in("a: 1\n---\nb: 2\n"), "a second document");
  EXPECT_SAYS(error_in("? [1, 2]\n: 3\n"), "a key must be a text");
  EXPECT_SAYS(error_in("a: [1, 2\n"), "malformed YAML");
  EXPECT_SAYS(error_in("a: 'open\n"), "malformed YAML");
  EXPECT_SAYS(error_in(""), "is empty");
  EXPECT_SAYS(error_in("# only a comment\n"), "is empty");
  EXPECT_SAYS(error_in("a: \xff\n"), "not UTF-8");
  EXPECT_SAYS(error_in(std::string("a: 1\nb: \x04\n")), "f.yaml:2:1: control character 0x04");
  EXPECT_SAYS(error_in(std::string("a: \0", 4)), "control character 0x00");
}

TEST(YamlReader, RefusesABombOfAliases) {
  std::string text = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'i'; ++c) {
    const char p = static_cast<char>(c - 1);
    text += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", c, p);
  }
  EXPECT_SAYS(error_in(text), "f.yaml:1:4: anchors");
}

TEST(YamlReader, BoundsDepthAndSize) {
  EXPECT_SAYS(error_in("a: " + std::string(20, '[') + std::string(20, ']')),
              "nested deeper than 16 levels");
  EXPECT_SAYS(error_in(std::string(100'000, '[')), "f.yaml:1:");
  EXPECT_SAYS(error_in(std::string(100'000, '{')), "f.yaml:1:");
  std::string nested;
  for (size_t i = 0; i < 40; ++i) nested += std::string(i, ' ') + "a:\n";
  EXPECT_SAYS(error_in(nested), "nested deeper than 16 levels");
  EXPECT_SAYS(error_in("a: " + std::string(kMostYamlBytes, 'x')), "at most 16777216 are read");
}

// Hostile repetition of every short token ends in an answer, not in a hang.
TEST(YamlReader, TakesLinearTime) {
  for (const std::string piece : {"[", "{", "- ", "a: ", "? ", "\"", "x\n", "[]", "{}", ": ", "!a ",
                                  "'", "#\n", "|\n", "-\n", "a:\n", ", "}) {
    std::string text;
    while (text.size() < 400'000) text += piece;
    const auto start = std::chrono::steady_clock::now();
    try {
      parse_yaml(text, "f.yaml");
    } catch (const Error&) {
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_LT(taken.count(), 10.0) << "\"" << piece << "\" repeated";
  }
}

TEST(YamlReader, RoundTripsTexts) {
  for (const std::string text : {"plain", "with space", "", "null", "true", "12", "1e5", "a: b",
                                 "# no", "é 漢 🙂", "tab\tnl\n", "quote\"back\\slash",
                                 "\x7f\x01", "-", "*a", "&a", "~", " lead", "\xef\xbb\xbf"}) {
    const YamlNode root = parse_yaml("k: " + yaml_text(text) + "\n", "f.yaml");
    EXPECT_EQ(root.items[0].kind, YamlNode::Kind::scalar) << text;
    EXPECT_EQ(root.items[0].text, text);
  }
}

TEST(YamlValue, NamesPlaceValueAndNearestKey) {
  const YamlNode root = parse_yaml("laers: 2\nn: -1\nx: 1e999\nf: yes\nc: bf17\n", "f.yaml");
  const YamlValue map(root, "f.yaml", "");
  constexpr std::string_view keys[] = {"layers", "n", "x", "f", "c"};
  constexpr std::string_view names[] = {"bf16", "f32"};
  EXPECT_EQ(error_of([&] { map.keys(keys); }),
            "f.yaml:1:1: unknown key \"laers\" (did you mean \"layers\"?)");
  EXPECT_EQ(error_of([&] { map.at("n").count(0, 9); }),
            "f.yaml:2:4: n: \"-1\" is not a whole number from 0 to 9");
  EXPECT_EQ(error_of([&] { map.at("x").number(); }),
            "f.yaml:3:4: x: \"1e999\" is not a finite number");
  EXPECT_EQ(error_of([&] { map.at("f").flag(); }),
            "f.yaml:4:4: f: \"yes\" is neither true nor false");
  EXPECT_EQ(error_of([&] { map.at("c").choice(names); }),
            "f.yaml:5:4: c: \"bf17\" is none of bf16, f32 (did you mean \"bf16\"?)");
  EXPECT_EQ(error_of([&] { map.at("d"); }), "f.yaml:1:1: key \"d\" is missing");
  EXPECT_EQ(error_of([&] { map.list(3); }), "f.yaml:1:1: must be a list, not a map");
}

TEST(YamlValue, CountsTakeNoOtherSpelling) {
  for (const char* text :
       {"\"3\"", "3.0", "0x3", "+3", "3e0", "three", "[3]", "18446744073709551616", "~"}) {
    const YamlNode root = parse_yaml(fmt::format("n: {}\n", text), "f.yaml");
    const YamlValue map(root, "f.yaml", "");
    EXPECT_SAYS(error_of([&] { map.at("n").count(0, 1000); }), "f.yaml:1:") << text;
  }
}

}  // namespace
}  // namespace weft::planner
