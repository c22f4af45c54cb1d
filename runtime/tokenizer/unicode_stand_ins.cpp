// A binary search in the table; text without such characters is not copied.
#include "runtime/tokenizer/unicode_stand_ins.h"

#include <algorithm>

#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

// The first character of the table has three bytes in UTF-8, so shorter ones need no look.
bool has_long_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= 0xE0; });
}

}  // namespace

char32_t stand_in_of(char32_t code) {
  const auto table = stand_ins();
  const auto row = std::upper_bound(table.begin(), table.end(), code,
                                    [](char32_t c, const StandIn& r) { return c < r.first; });
  if (row == table.begin() || code > row[-1].last) return code;
  return row[-1].character;
}

bool replace_by_stand_ins(std::string_view text, std::string& copy) {
  if (!has_long_characters(text)) return false;
  bool replaced = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const char32_t other = step.bytes < 3 ? step.code : stand_in_of(step.code);
    if (other != step.code) {
      if (!replaced) copy = text;
      replaced = true;
      std::string bytes;
      append_utf8(bytes, other);
      copy.replace(at, step.bytes, bytes);
    }
    at += step.bytes;
  }
  return replaced;
}

}  // namespace weft::runtime
