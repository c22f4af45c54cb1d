// Last words that must not hold up what comes after them.
#pragma once

#include <string_view>

namespace weft::parallel {

// Writes what the file takes within limit_ms: a terminal that is paused, or a pipe that nobody
// reads, loses the rest.
void write_within(int fd, std::string_view text, int limit_ms);

}  // namespace weft::parallel
