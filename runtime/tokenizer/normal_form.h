// Unicode normal forms in linear time, and lower case, with the characters the `tokenizers` package
// knows. Its normal forms are Unicode 9's: marks and compositions added later stay as they are. Its
// lower case is Unicode 17's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft::runtime {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is well-formed UTF-8, and so is the result.
std::string normalize(std::string_view text, NormalForm form);

// Character by character, without regard to what is around.
std::string lower_case(std::string_view text);

struct CharacterRange {
  uint32_t first, last;  // both ends included
};

// Characters that decompose, combine or move in a later Unicode only. Ascending, disjoint. Made by
// scripts/make_unicode_tables.py.
std::span<const CharacterRange> inert_characters();

struct LowerCase {
  uint32_t first, last;  // both ends included
  uint32_t lower;        // of the first; the others follow
};

// What Unicode 15 and later added. Ascending, disjoint; made by the same script.
std::span<const LowerCase> newer_lower_case();

}  // namespace weft::runtime
