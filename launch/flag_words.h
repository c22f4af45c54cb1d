// Flags whose value is one of a few words.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace weft::launch {

// The index of `text` in `names`; throws Error with the names and the nearest.
size_t choose(const std::string& flag, const std::string& text,
              std::span<const std::string_view> names);

}  // namespace weft::launch
