// The forms of CUDA_VISIBLE_DEVICES: unset, empty, numbers, UUIDs, MIG instances.
#include "parallel/visible_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

struct Entry {
  size_t gpu = 0;
  std::string mig;
  bool operator==(const Entry&) const = default;
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<Entry> by_number(const std::vector<size_t>& shown, const std::string& word) {
  size_t number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || stop != end || number >= shown.size()) return std::nullopt;
  return Entry{shown[number], {}};
}

// The only GPU whose UUID begins so.
std::optional<Entry> by_uuid(const Topology& t, const std::vector<size_t>& shown,
                             const std::string& word) {
  std::optional<Entry> found;
  for (const size_t gpu : shown) {
    if (!t.gpus[gpu].uuid.starts_with(word)) continue;
    if (found) return std::nullopt;
    found = Entry{gpu, {}};
  }
  return found;
}

// "MIG-UUID", or the older "MIG-GPU-UUID/instance/compute instance".
std::optional<Entry> by_mig(const Topology& t, const std::vector<size_t>& shown,
                            const std::string& word) {
  for (const size_t gpu : shown) {
    const Gpu& g = t.gpus[gpu];
    const bool names_gpu = !g.uuid.empty() && word.starts_with("MIG-" + g.uuid + "/");
    const bool names_part =
        std::find(g.mig_uuids.begin(), g.mig_uuids.end(), word) != g.mig_uuids.end();
    if (names_gpu || names_part) return Entry{gpu, word};
  }
  return std::nullopt;
}

std::optional<Entry> entry_of(const Topology& t, const std::vector<size_t>& shown,
                              const std::string& word) {
  if (word.starts_with("GPU-")) return by_uuid(t, shown, word);
  if (word.starts_with("MIG-")) return by_mig(t, shown, word);
  return by_number(shown, word);
}

void doubt_order(const Topology& t, const std::vector<size_t>& shown, const std::string& order,
                 std::vector<std::string>& doubts) {
  std::set<std::string> models;
  for (const size_t gpu : shown) models.insert(t.gpus[gpu].name);
  if (models.size() > 1 && order != "PCI_BUS_ID")
    doubts.push_back(
        "CUDA_VISIBLE_DEVICES counts GPUs of several models: weft counts them by PCI bus id; say "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID to have other programs do so too");
}

}  // namespace

VisibleDevices visible_devices(const Topology& t, const std::optional<std::string>& value,
                               const std::string& order) {
  VisibleDevices visible;
  std::vector<size_t> shown;
  for (size_t i = 0; i < t.gpus.size(); ++i)
    if (t.gpus[i].usable) shown.push_back(i);
  std::vector<Entry> entries;
  if (!value) {
    for (const size_t gpu : shown) entries.push_back({gpu, {}});
  } else if (!trimmed(*value).empty()) {
    for (const std::string& part : split(*value, ',')) {
      const std::string word = trimmed(part);
      const std::optional<Entry> entry = entry_of(t, shown, word);
      if (!entry) {
        visible.doubts.push_back(fmt::format(
            "CUDA_VISIBLE_DEVICES \"{}\": \"{}\" is none of the {} GPUs here; as CUDA does, it and "
            "what follows are left out",
            value->substr(0, 200), word.substr(0, 60), shown.size()));
        break;
      }
      const bool counts = word.find_first_not_of("0123456789") == std::string::npos;
      if (counts && entries.empty()) doubt_order(t, shown, order, visible.doubts);
      entries.push_back(*entry);
    }
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (std::count(entries.begin(), entries.end(), entries[i]) == 1) continue;
    visible.doubts.push_back(
        fmt::format("CUDA_VISIBLE_DEVICES \"{}\" names GPU {} twice: as in CUDA, none is visible",
                    value->substr(0, 200), t.gpus[entries[i].gpu].bus_id));
    entries.clear();
  }
  for (Entry& entry : entries) {
    visible.gpus.push_back(entry.gpu);
    visible.mig_uuids.push_back(std::move(entry.mig));
  }
  return visible;
}

}  // namespace weft::parallel
