// UTF-8 as the tokenizer needs it: bytes from anywhere become well-formed text, and a stream of
// bytes is cut only where no later byte can change what was read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::runtime {

// One step through bytes: a character, or bytes that are none. Bytes that can't be read are cut as
// Unicode recommends (the longest start of a character counts as one error), which is what Python's
// errors="replace" and Rust's from_utf8_lossy do.
struct Utf8Step {
  enum Kind { kCharacter, kBroken, kUnfinished };  // unfinished: the text ends inside a character
  Kind kind;
  size_t bytes;   // >= 1
  char32_t code;  // U+FFFD unless a character
};
Utf8Step utf8_step(std::string_view bytes, size_t at);

void append_utf8(std::string& to, char32_t code);

// U+FFFD for each broken or unfinished part.
std::string to_valid_utf8(std::string_view bytes);

// Bytes of the longest prefix that no later byte can change: all but an unfinished end.
size_t utf8_settled_bytes(std::string_view bytes);

// Unicode's White_Space property.
bool is_white_space(char32_t code);

// Offset of the first byte after the white space that starts at `at`, and of the first byte of the
// white space that ends at `at` but does not begin before `least`. The text must be well-formed.
size_t skip_white_space(std::string_view text, size_t at);
size_t skip_white_space_back(std::string_view text, size_t at, size_t least);

// Where the character that ends at `at` (> 0) begins, in well-formed text.
size_t previous_character(std::string_view text, size_t at);

}  // namespace weft::runtime
