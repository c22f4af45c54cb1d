// Unicode normal forms in linear time, with the characters the `tokenizers` package knows: its
// tables are Unicode 9, so marks and compositions added later stay as they are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::runtime {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is well-formed UTF-8, and so is the result.
std::string normalize(std::string_view text, NormalForm form);

struct CharacterRange {
  uint32_t first, last;  // both ends included
};

// Characters that decompose, combine or move in a later Unicode only. Ascending, disjoint. Made by
// scripts/make_unicode_tables.py.
std::span<const CharacterRange> inert_characters();

}  // namespace weft::runtime
