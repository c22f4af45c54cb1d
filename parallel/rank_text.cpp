// Runs of ranks joined, long lists of hosts cut.
#include "parallel/rank_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace weft::parallel {
namespace {

constexpr size_t kMaxHosts = 4;  // named

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string hosts_text(const std::vector<std::string_view>& hosts) {
  const size_t n = std::min(hosts.size(), kMaxHosts);
  const auto named = std::span(hosts).first(n);
  std::string text =
      fmt::format("{} {}", hosts.size() == 1 ? "host" : "hosts", fmt::join(named, ", "));
  if (hosts.size() > n) text += fmt::format(" and {} more", hosts.size() - n);
  return text;
}

}  // namespace weft::parallel
