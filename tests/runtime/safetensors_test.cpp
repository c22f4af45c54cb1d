// Headers as a hostile file would have them, and one as it should be.
#include "runtime/safetensors.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/command.h"
#include "tests/support/error_text.h"

namespace weft::runtime {
namespace {

using test::TemporaryFolder;

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

std::string object(const std::string& members) { return fmt::format("{{{}}}", members); }

StoredTensors parse(const std::string& members, uint64_t data_bytes) {
  return parse_safetensors_header(object(members), data_bytes, "x.safetensors");
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xff);
  return bytes + rest;
}

std::string write(const TemporaryFolder& folder, const std::string& bytes) {
  const std::string path = folder / "model.safetensors";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Safetensors, ReadsAHeader) {
  const auto tensors = parse(
      R"("__metadata__":{"format":"pt"},)" + entry("b", "F32", "[3]", "[12,24]") + "," +
          entry("a", "BF16", "[2,3]", "[0,12]") + "," + entry("scalar", "F16", "[]", "[24,26]") +
          "," + entry("empty", "F16", "[0,7]", "[26,26]"),
      26);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors.at("a").dtype, DType::bf16);
  EXPECT_EQ(tensors.at("a").shape, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(tensors.at("b").begin, 12u);
  EXPECT_EQ(tensors.at("b").end, 24u);
  EXPECT_EQ(tensors.at("scalar").dtype, DType::f16);
}

TEST(Safetensors, KeepsTypesItDoesNotComputeWith) {
  const auto tensors =
      parse(entry("a", "I64", "[2]", "[0,16]") + "," + entry("b", "F4_X", "[5]", "[16,19]"), 19);
  EXPECT_FALSE(tensors.at("a").dtype);
  EXPECT_FALSE(tensors.at("b").dtype);
  EXPECT_EQ(tensors.at("b").dtype_text, "F4_X");
  EXPECT_ERROR(parse(entry("a", "I64", "[2]", "[0,15]"), 15), "\"a\"", "takes 16 bytes", "hold 15");
}

TEST(Safetensors, RefusesBadRanges) {
  EXPECT_ERROR(
      parse(entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[4,12]"), 12),
      "\"b\" at data_offsets 4..12 overlaps \"a\", which ends at 8");
  EXPECT_ERROR(
      parse(entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[0,8]"), 8),
      "overlaps");
  EXPECT_ERROR(parse(entry("a", "F32", "[2]", "[8,0]"), 8), "8..0 are reversed");
  EXPECT_ERROR(parse(entry("a", "F32", "[2]", "[0,8]"), 7), "\"a\" ends at byte 8",
               "the file has 7");
  EXPECT_ERROR(parse(entry("a", "F32", "[2]", "[0,8]"), 9), "last 1 of 9");
  EXPECT_ERROR(parse(entry("a", "F32", "[2]", "[4,12]"), 12), "bytes 0..4", "belong to no tensor");
  EXPECT_ERROR(parse(entry("a", "F32", "[1]", "[18446744073709551612,18446744073709551615]"), 4),
               "takes 4 bytes");
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  EXPECT_ERROR(parse(entry("a", "F32", "[4294967296,4294967296]", "[0,0]"), 0),
               "[4294967296, 4294967296] of F32 overflows");
  EXPECT_ERROR(parse(entry("a", "F32", "[18446744073709551616]", "[0,0]"), 0), "shape is");
  EXPECT_ERROR(parse(entry("a", "F32", "[-1]", "[0,4]"), 4), "shape is [-1]");
  EXPECT_ERROR(parse(entry("a", "F32", "[1.0]", "[0,4]"), 4), "shape is [1.0]");
  EXPECT_ERROR(parse(entry("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), "up to 8");
}

TEST(Safetensors, RefusesWrongMembers) {
  EXPECT_ERROR(parse(R"("a":7)", 0), "\"a\": is 7, not an object");
  EXPECT_ERROR(parse(R"("a":{"dtype":"F32","shape":[0]})", 0), "needs dtype, shape");
  EXPECT_ERROR(parse(R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"x":1})", 0),
               "unknown member \"x\"");
  EXPECT_ERROR(parse(R"("a":{"dtype":1,"shape":[0],"data_offsets":[0,0]})", 0), "dtype is 1");
  EXPECT_ERROR(parse(entry("a", "F32", "[0]", "[0]"), 0), "not two whole numbers");
  EXPECT_ERROR(parse(entry("a", "F32", "{}", "[0,0]"), 0), "shape is an object of 0");
  EXPECT_ERROR(parse(R"("__metadata__":{"n":3})", 0), "__metadata__", "\"n\" is 3");
  EXPECT_ERROR(parse(R"("__metadata__":[])", 0), "__metadata__ is []");
}

TEST(Safetensors, RefusesDoubledNames) {
  EXPECT_ERROR(
      parse(entry("a", "F32", "[0]", "[0,0]") + "," + entry("a", "F32", "[0]", "[0,0]"), 0),
      "\"a\" occurs twice");
}

TEST(Safetensors, SaysEveryProblemAtOnceButNotThousands) {
  std::string members;
  for (int i = 0; i < 50; ++i)
    members += fmt::format("{}{}", i == 0 ? "" : ",",
                           entry(fmt::format("t{:02}", i), "F32", "[1]", "[4,0]"));
  EXPECT_ERROR(parse(members, 0), "50 problems", "t00", "t19", "30 more");
}

TEST(Safetensors, EscapesNamesThatWouldUpsetATerminal) {
  const std::string text = test::error_text(
      [] { parse(R"("a\u001b[2J":{"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 0); });
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

TEST(Safetensors, RefusesJsonThatIsNone) {
  EXPECT_ERROR(parse_safetensors_header("{\"a\":", 0, "x"), "x: header: not valid JSON at byte");
  EXPECT_ERROR(parse_safetensors_header("", 0, "x"), "not valid JSON");
  EXPECT_ERROR(parse_safetensors_header("[]", 0, "x"), "not an object");
  EXPECT_ERROR(parse_safetensors_header("{\"\xff\":1}", 0, "x"), "not valid JSON");
  EXPECT_ERROR(parse_safetensors_header("{} {}", 0, "x"), "not valid JSON");
}

TEST(Safetensors, RefusesDeepJson) {
  const std::string deep(100'000, '[');
  EXPECT_ERROR(parse_safetensors_header(fmt::format("{{\"a\":{}", deep), 0, "x"), "deeper than 8");
}

TEST(Safetensors, OpensAFile) {
  const TemporaryFolder folder;
  const std::string header = object(entry("a", "F16", "[2]", "[0,4]")) + "  ";
  const auto opened = open_safetensors(write(folder, with_length(header.size(), header + "wxyz")));
  EXPECT_EQ(opened.data_offset, 8 + header.size());
  EXPECT_EQ(opened.tensors.at("a").end, 4u);
}

TEST(Safetensors, RefusesLengthsTheFileDoesNotHave) {
  const TemporaryFolder folder;
  EXPECT_ERROR(open_safetensors(write(folder, "short")), "5 bytes are too few");
  EXPECT_ERROR(open_safetensors(write(folder, with_length(3, "{}"))), "a header of 3 bytes",
               "only 2");
  EXPECT_ERROR(open_safetensors(write(folder, with_length(~uint64_t{0}, "{}"))), "at most");
  EXPECT_ERROR(open_safetensors(write(folder, with_length(kMostHeaderBytes + 1, "{}"))),
               "at most 100000000");
  EXPECT_ERROR(open_safetensors(folder / "absent"), "absent", "No such file");
  EXPECT_ERROR(open_safetensors(folder.path()), "not a regular file");
}

TEST(Safetensors, RefusesATruncatedFile) {
  const TemporaryFolder folder;
  const std::string header = object(entry("a", "F32", "[100]", "[0,400]"));
  EXPECT_ERROR(
      open_safetensors(write(folder, with_length(header.size(), header + std::string(399, 'x')))),
      "\"a\" ends at byte 400", "the file has 399", "cut short");
}

}  // namespace
}  // namespace weft::runtime
