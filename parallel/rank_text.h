// Ranks and hosts as people read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::parallel {

// "rank 3", "ranks 0, 2-5"; ascending.
std::string ranks_text(const std::vector<int>& ranks);
// "host a", "hosts a, b"; of many only the first.
std::string hosts_text(const std::vector<std::string_view>& hosts);

}  // namespace weft::parallel
