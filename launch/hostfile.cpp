#include "launch/hostfile.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

constexpr size_t kMostHosts = 100'000;
constexpr size_t kMostSlots = 1 << 16;  // of a host

// Names, addresses, and user@name; what else would be a mistake or a shell's.
bool is_host(std::string_view word) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '@';
  };
  return !word.empty() && word.size() < 256 && word.front() != '-' &&
         std::all_of(word.begin(), word.end(), fits);
}

HostSlots parse_line(const std::string& line, const std::string& place) {
  std::istringstream words(line);
  HostSlots host;
  words >> host.name;
  if (!is_host(host.name)) throw input_error("{}: \"{}\" is no host's name", place, host.name);
  for (std::string word; words >> word;) {
    if (word.starts_with("slots="))
      host.slots = parse_count(word.substr(6), place + ": slots", kMostSlots);
    else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots="))
      throw input_error("{}: \"{}\" is neither slots=N nor max_slots=N", place, word);
  }
  if (host.slots == 0)
    throw input_error("{}: host {} has no slots=N: how many ranks may run there?", place,
                      host.name);
  return host;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& where) {
  std::vector<HostSlots> hosts;
  std::istringstream lines{std::string(text)};
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const HostSlots host = parse_line(line, fmt::format("{}:{}", where, number));
    const auto same = std::find_if(hosts.begin(), hosts.end(),
                                   [&](const HostSlots& one) { return one.name == host.name; });
    if (same != hosts.end())
      same->slots += host.slots;
    else
      hosts.push_back(host);
    if (hosts.size() > kMostHosts) throw input_error("{}: more than {} hosts", where, kMostHosts);
  }
  if (hosts.empty()) throw input_error("{}: no hosts", where);
  return hosts;
}

}  // namespace weft::launch
