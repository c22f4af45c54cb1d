// Cards by nearness, interfaces by what is behind them.
#include "parallel/nccl_hints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "parallel/gpu_distance.h"

namespace weft::parallel {
namespace {

using Names = std::set<std::string>;

// "=": names are meant whole, not as beginnings.
std::string exactly(const Names& names) {
  return names.empty() ? std::string() : fmt::format("={}", fmt::join(names, ","));
}

std::string rdma_hint(const Topology& t, const std::vector<size_t>& gpus) {
  Names near, all;
  for (const NetworkCard& card : t.cards) all.insert(card.rdma.begin(), card.rdma.end());
  for (const size_t gpu : gpus)
    for (const size_t card : nearest_cards(t, t.gpus[gpu]))
      near.insert(t.cards[card].rdma.begin(), t.cards[card].rdma.end());
  return near == all ? std::string() : exactly(near);
}

std::string socket_hint(const Topology& t, const std::vector<std::string>& up) {
  Names cards;
  for (const NetworkCard& card : t.cards)
    for (const std::string& name : card.interfaces)
      if (std::find(up.begin(), up.end(), name) != up.end()) cards.insert(name);
  return cards.size() == up.size() ? std::string() : exactly(cards);
}

bool is_made_of_others(const std::string& interface) {
  std::error_code ignored;
  const std::filesystem::path folder = "/sys/class/net/" + interface;
  if (std::filesystem::exists(folder / "bridge", ignored)) return false;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with("lower_")) return true;
  return false;
}

bool reaches_others(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  if (entry.ifa_flags & IFF_LOOPBACK) return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  const auto* address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return !IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
}

}  // namespace

NcclHints nccl_hints(const Topology& t, const std::vector<size_t>& gpus,
                     const std::vector<std::string>& interfaces_up) {
  return {rdma_hint(t, gpus), socket_hint(t, interfaces_up)};
}

std::vector<std::string> interfaces_to_choose() {
  std::vector<std::string> up = interfaces_up();
  if (std::any_of(up.begin(), up.end(), is_made_of_others)) up.clear();
  return up;
}

std::vector<std::string> interfaces_up() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  Names names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
    if (reaches_others(*entry)) names.insert(entry->ifa_name);
  freeifaddrs(list);
  return {names.begin(), names.end()};
}

}  // namespace weft::parallel
