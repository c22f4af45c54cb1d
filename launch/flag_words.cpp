#include "launch/flag_words.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {

size_t choose(const std::string& flag, const std::string& text,
              std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    throw input_error("{} \"{}\" is none of {}{}", flag, text, fmt::join(names, ", "),
                      did_you_mean(text, names));
  return static_cast<size_t>(found - names.begin());
}

}  // namespace weft::launch
