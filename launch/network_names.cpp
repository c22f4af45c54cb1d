#include "launch/network_names.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "parallel/nccl_hints.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

std::vector<std::string> rdma_devices() {
  std::error_code ignored;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Network {
  uint32_t address = 0;  // host order
  uint32_t mask = 0;
};

Network parse_network(const std::string& text) {
  const size_t slash = text.find('/');
  in_addr address{};
  const size_t bits = parse_count(text.substr(slash + 1), "--nic " + text, 32);
  if (inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1)
    throw input_error("--nic {}: no address of a network, as in 10.0.0.0/24", text);
  return {ntohl(address.s_addr),
          bits == 0 ? 0 : ~uint32_t{0} << (32 - static_cast<uint32_t>(bits))};
}

bool is_here(const Network& network) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    found |= ((ntohl(address->sin_addr.s_addr) ^ network.address) & network.mask) == 0;
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

void sort_networks(const std::vector<std::string>& given, std::vector<std::string>& interfaces,
                   std::vector<std::string>& rdma) {
  const std::vector<std::string> up = parallel::interfaces_up(), devices = rdma_devices();
  const auto among = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const std::string& name : given) {
    if (among(devices, name)) {
      rdma.push_back(name);
    } else if (among(up, name) ||
               (name.find('/') != std::string::npos && is_here(parse_network(name)))) {
      interfaces.push_back(name);
    } else {
      std::vector<std::string> all = up;
      all.insert(all.end(), devices.begin(), devices.end());
      const std::vector<std::string_view> views(all.begin(), all.end());
      throw input_error("--nic {}: this host has no such network{}; it has {}", name,
                        did_you_mean(name, views),
                        all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", ")));
    }
  }
}

}  // namespace weft::launch
