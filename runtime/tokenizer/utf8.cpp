// One step of a decoder that knows which bytes may follow which, and what is built on it.
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";

// How many bytes follow a lead byte, and what the first of them may be.
struct Lead {
  size_t more;  // 0: not a lead byte
  unsigned low, high;
};

Lead lead_of(unsigned byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes, size_t at) {
  const auto byte_at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte_at(at);
  if (first < 0x80) return {Utf8Step::kCharacter, 1, first};
  const Lead lead = lead_of(first);
  if (lead.more == 0) return {Utf8Step::kBroken, 1, kReplacement};
  char32_t code = first & (0x3Fu >> lead.more);
  for (size_t i = 1; i <= lead.more; ++i) {
    if (at + i >= bytes.size()) return {Utf8Step::kUnfinished, i, kReplacement};
    const unsigned next = byte_at(at + i);
    const unsigned low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (next < low || next > high) return {Utf8Step::kBroken, i, kReplacement};
    code = code << 6 | (next & 0x3F);
  }
  return {Utf8Step::kCharacter, lead.more + 1, code};
}

void append_utf8(std::string& to, char32_t code) {
  if (code < 0x80) {
    to += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  const unsigned mark = more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0;
  to += static_cast<char>(mark | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) to += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes, at);
    text += step.kind == Utf8Step::kCharacter ? bytes.substr(at, step.bytes) : kReplacementBytes;
    at += step.bytes;
  }
  return text;
}

size_t utf8_settled_bytes(std::string_view bytes) {
  // An unfinished character has at most three bytes and starts with the last lead byte.
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const size_t at = bytes.size() - back;
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) continue;
    const Utf8Step step = utf8_step(bytes, at);
    return step.kind == Utf8Step::kUnfinished ? at : bytes.size();
  }
  return bytes.size();
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

size_t skip_white_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!is_white_space(step.code)) break;
    at += step.bytes;
  }
  return at;
}

size_t skip_white_space_back(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const size_t before = previous_character(text, at);
    if (before < least || !is_white_space(utf8_step(text, before).code)) break;
    at = before;
  }
  return at;
}

size_t previous_character(std::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace weft::runtime
