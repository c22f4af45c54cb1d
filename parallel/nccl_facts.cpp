// NCCL's lists of names: "^" before one excludes, "=" means names whole and not as beginnings, and
// a name may end in ":PORT".
#include "parallel/nccl_facts.h"

#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <strings.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "parallel/nccl_library.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kSettings[] = {"NCCL_ALGO",        "NCCL_IB_DISABLE",   "NCCL_NET",
                                     "NCCL_NET_PLUGIN",  "NCCL_P2P_DISABLE",  "NCCL_PROTO",
                                     "NCCL_SHM_DISABLE", "NCCL_SOCKET_FAMILY"};

std::string value_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string() : value;
}

bool is_ip(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr && (entry.ifa_flags & IFF_UP) != 0 &&
         (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6);
}

struct NameList {
  bool excludes = false;
  bool whole = false;
  Names names;

  bool names_one(const std::string& name) const {
    return std::any_of(names.begin(), names.end(), [&](const std::string& listed) {
      return whole ? name == listed : name.starts_with(listed);
    });
  }
  bool takes(const std::string& name) const { return names_one(name) != excludes; }
};

NameList parse(std::string_view text) {
  NameList list;
  list.excludes = text.starts_with('^');
  if (list.excludes) text.remove_prefix(1);
  list.whole = text.starts_with('=');
  if (list.whole) text.remove_prefix(1);
  for (const std::string& part : split(std::string(text), ','))
    if (const std::string name = part.substr(0, part.find(':')); !name.empty())
      list.names.push_back(name);
  return list;
}

// Empty where it takes one of them, or names none.
std::string nothing_taken(const char* variable, const std::string& value, const Names& here,
                          std::string_view what) {
  const NameList list = parse(value);
  if (list.names.empty() ||
      std::any_of(here.begin(), here.end(), [&](const auto& name) { return list.takes(name); }))
    return {};
  const std::vector<std::string_view> views(here.begin(), here.end());
  return fmt::format("{}={} {} no {}{}; it has {}", variable, value,
                     list.excludes ? "leaves" : "names", what,
                     did_you_mean(list.names.front(), views),
                     here.empty() ? "none" : fmt::format("{}", fmt::join(here, ", ")));
}

}  // namespace

HostNetworks host_networks() {
  HostNetworks found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    std::set<std::string> names;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
      if (is_ip(*entry)) names.insert(entry->ifa_name);
    freeifaddrs(list);
    found.interfaces.assign(names.begin(), names.end());
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", ignored))
    found.rdma.push_back(entry.path().filename().string());
  std::sort(found.rdma.begin(), found.rdma.end());
  return found;
}

std::string nccl_version_here(const std::string& library) {
  try {
    return nccl_version_text(NcclLibrary(library).version());
  } catch (const Error& error) {
    return error.what();
  }
}

std::string nccl_settings(const Environment& environment) {
  Names set;
  for (const char* name : kSettings)
    if (environment(name) != nullptr) set.push_back(fmt::format("{}={}", name, environment(name)));
  return fmt::format("{}", fmt::join(set, " "));
}

std::vector<std::string> nccl_name_problems(const Environment& environment,
                                            const HostNetworks& networks, bool several_hosts) {
  std::vector<std::string> problems;
  const auto add = [&](std::string problem) {
    if (!problem.empty()) problems.push_back(std::move(problem));
  };
  // Ranks of one host meet through an interface too.
  add(nothing_taken("NCCL_SOCKET_IFNAME", value_of(environment, "NCCL_SOCKET_IFNAME"),
                    networks.interfaces, "interface of this host that is up with an address"));
  const std::string net = value_of(environment, "NCCL_NET");
  const bool asks_for_rdma = strcasecmp(net.c_str(), "IB") == 0;
  if (asks_for_rdma && networks.rdma.empty())
    add("NCCL_NET=" + net + " and this host has no RDMA device");
  const bool may_use_rdma =
      value_of(environment, "NCCL_IB_DISABLE") != "1" && (net.empty() || asks_for_rdma);
  if (several_hosts && may_use_rdma)
    add(nothing_taken("NCCL_IB_HCA", value_of(environment, "NCCL_IB_HCA"), networks.rdma,
                      "RDMA device of this host"));
  return problems;
}

}  // namespace weft::parallel
