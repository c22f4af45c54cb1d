// Small helpers for texts that people read: nearest names, lists, sizes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The candidate within a third of the name's length in edits (insert, delete, substitute,
// transpose), or an empty view. Used for "unknown key \"laers\": did you mean \"layers\"?".
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

// " (did you mean \"layers\"?)", or an empty string.
std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates);

std::vector<std::string> split(std::string_view text, char separator);

// "1.50 GiB", "12.0 MiB", "900 B".
std::string human_bytes(size_t bytes);

// "33.34 B", "3.62 M", "250": a count as people say it.
std::string human_count(size_t n);

// Whole text as a non-negative integer of at most `most`; throws Error naming `what`.
size_t parse_count(std::string_view text, std::string_view what, size_t most);

// True where the bytes are well-formed UTF-8 (no overlong forms, no surrogates, <= U+10FFFF).
bool is_utf8(std::string_view bytes);

}  // namespace weft
