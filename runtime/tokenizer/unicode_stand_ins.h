// PCRE2 10.42 knows Unicode 14, the `tokenizers` package Unicode 16. A character whose category
// changed in between is matched as the nearest one (in code point) that had the category in
// Unicode 14 and has as many bytes in UTF-8, so that offsets stay. With a newer PCRE2 nothing
// changes: the stand-ins are old.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::runtime {

struct StandIn {
  uint32_t first, last;  // characters, both ends included
  uint32_t character;    // matched in their place
};

// Ascending, disjoint. Made by scripts/make_unicode_tables.py.
std::span<const StandIn> stand_ins();

// The character itself where it has no stand-in.
char32_t stand_in_of(char32_t code);

// True where `text` (well-formed UTF-8) has such characters; `copy` is then the text to match.
bool replace_by_stand_ins(std::string_view text, std::string& copy);

}  // namespace weft::runtime
