// hwloc's XML into a topology, by a reader of our own: hwloc itself refuses what a newer one wrote,
// and trusts its files more than a file from elsewhere deserves.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "parallel/hwloc_xml_source.h"
#include "parallel/topology_sources.h"
#include "parallel/xml_tree.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

// What a file may fill memory with before finish() looks at it.
constexpr size_t kMostObjects = 8192;  // of one kind
constexpr size_t kMostLinkedDevices = 512;

// What holds for the children of an object.
struct Place {
  CpuSet cpus;
  std::optional<size_t> root;
  std::vector<std::string> switches;
};

class HwlocReader {
 public:
  HwlocReader(const std::string& where, Topology& topology) : where_(where), t_(topology) {}

  void read(const XmlElement& document) {
    check_version(document);
    for (const XmlElement& child : document.children)
      if (child.name == "object") read_object(child, Place());
    if (!has_machine_) throw error(document, "has no object of type \"Machine\"");
    settle_numa();
    for (const XmlElement& child : document.children)
      if (child.name.starts_with("distances2")) read_nvlinks(child);
  }

  const std::vector<NvLinkEnd>& links() const { return links_; }

 private:
  Error error(const XmlElement& at, std::string_view what) const {
    return input_error("{}:{}: <{}> {}", where_, at.line, at.name, what);
  }

  uint64_t number(const XmlElement& at, std::string_view attribute, uint64_t most) const {
    const std::string name = fmt::format("{}:{}: {}", where_, at.line, attribute);
    return parse_count(at.get(attribute), name, most);
  }

  CpuSet mask(const XmlElement& at, std::string_view attribute) const {
    const std::string* text = at.find(attribute);
    if (text == nullptr) return {};
    return CpuSet::parse_mask(*text, fmt::format("{}:{}: {}", where_, at.line, attribute));
  }

  void check_version(const XmlElement& document) {
    const std::string_view version = document.get("version");
    if (version.empty() || version.starts_with("1"))
      throw error(
          document,
          "is of hwloc 1, whose trees are others: write it anew with the lstopo of hwloc 2");
    const bool known = version.starts_with("2.") || version.starts_with("3.");
    if (!known)
      throw error(document,
                  fmt::format("version \"{}\" is not one of 2.x and 3.x", version.substr(0, 20)));
    t_.source += fmt::format(" (hwloc XML {})", version.substr(0, 8));
    if (version != "2.0")
      t_.doubts.push_back(
          fmt::format("the file is of hwloc's XML version {}; versions 2.0 are read for certain",
                      version.substr(0, 8)));
  }

  void read_object(const XmlElement& object, Place place) {
    const std::string_view type = object.get("type");
    if (object.find("cpuset") != nullptr) place.cpus = mask(object, "cpuset");
    if (type == "Machine") read_machine(object, place);
    if (type == "Package") ++t_.n_packages;
    if (type == "NUMANode") read_numa(object, place);
    if (type == "Core") read_core(object, place);
    if (type == "PU" || type == "Core") return;
    if (type == "Bridge") read_bridge(object, place);
    if (type == "PCIDev") return read_device(object, place);
    for (const XmlElement& child : object.children)
      if (child.name == "object") read_object(child, place);
  }

  void read_machine(const XmlElement& object, const Place& place) {
    if (has_machine_) throw error(object, "is a second machine; one host is read");
    has_machine_ = true;
    t_.cpus = place.cpus;
    for (const XmlElement& info : object.children)
      if (info.get("name") == "DMIProductName") t_.product = info.get("value").substr(0, 100);
  }

  void read_core(const XmlElement& object, const Place& place) {
    if (t_.cores.size() == kMostObjects) throw error(object, "is one core too many");
    t_.cores.push_back(place.cpus);
  }

  void read_numa(const XmlElement& object, const Place& place) {
    if (t_.numa.size() == kMostObjects) throw error(object, "is one NUMA node too many");
    NumaNode node;
    node.id = static_cast<int>(number(object, "os_index", 1 << 20));
    node.cpus = place.cpus;
    if (object.find("local_memory") != nullptr)
      node.memory_bytes = number(object, "local_memory", UINT64_MAX);
    t_.numa.push_back(std::move(node));
  }

  void read_bridge(const XmlElement& object, Place& place) {
    if (object.get("bridge_type").starts_with("0-")) {  // from the host to PCI
      const std::vector<std::string> range = split(object.get("bridge_pci"), '[');
      if (t_.roots.size() == kMostObjects) throw error(object, "is one root too many");
      if (range.size() != 2) throw error(object, "has no bridge_pci such as 0000:[18-1c]");
      const std::vector<std::string> buses = split(range[1], '-');
      place.root = t_.roots.size();
      t_.roots.push_back({(range[0] + buses[0]).substr(0, 16), place.cpus, -1});
      return;
    }
    const std::string bus_id = normal_bus_id(object.get("pci_busid"));
    if (!bus_id.empty()) place.switches.push_back(bus_id);
  }

  // "0302 [10de:2330] [10de:16c1] a1": class, device, subsystem, revision.
  void read_type(const XmlElement& object, PciDevice& device) const {
    const std::string_view text = object.get("pci_type");
    const auto hex = [&](size_t at) {
      uint32_t value = 0;
      const char* begin = text.data() + std::min(at, text.size());
      const char* end = text.data() + std::min(at + 4, text.size());
      const auto [stop, failed] = std::from_chars(begin, end, value, 16);
      if (failed != std::errc() || stop != begin + 4)
        throw error(object, fmt::format("pci_type \"{}\" is not as \"0302 [10de:2330]\"",
                                        text.substr(0, 40)));
      return value;
    };
    device.pci_class = hex(0);
    device.vendor = hex(6);
    device.device = hex(11);
  }

  void read_device(const XmlElement& object, const Place& place) {
    if (++n_devices_ > kMostObjects) throw error(object, "is one PCI device too many");
    PciDevice device;
    device.bus_id = normal_bus_id(object.get("pci_busid"));
    if (device.bus_id.empty())
      throw error(object, fmt::format("pci_busid \"{}\" is not as \"0000:1b:00.0\"",
                                      object.get("pci_busid").substr(0, 40)));
    read_type(object, device);
    device.root = place.root ? *place.root : root_of(place);
    device.switches = place.switches;
    device.link_gbps = link_speed(object);
    if (device.vendor == kNvidia && device.pci_class == 0x0680) ++t_.n_nvswitches;
    if (is_network_class(device.pci_class))
      read_card(object, std::move(device));
    else if (is_gpu_class(device.pci_class))
      read_gpu(object, std::move(device));
  }

  // A device without a host bridge above it: filtered out, or a file made by hand.
  size_t root_of(const Place& place) {
    t_.roots.push_back({"unknown", place.cpus, -1});
    return t_.roots.size() - 1;
  }

  static double link_speed(const XmlElement& object) {
    const std::string text(object.get("pci_link_speed"));
    const double speed = std::strtod(text.c_str(), nullptr);
    return speed > 0 && speed < 1e6 ? speed : 0;
  }

  void read_gpu(const XmlElement& object, PciDevice device) {
    device.name = gpu_name(device.vendor, device.device);
    if (device.vendor == kAmd || device.vendor == kIntel)
      return t_.other_gpus.push_back(std::move(device));
    if (device.vendor != kNvidia) return;  // a service processor's screen
    Gpu gpu;
    static_cast<PciDevice&>(gpu) = std::move(device);
    note_index(object, gpu.bus_id);
    for (const XmlElement& child : object.children) {
      if (child.name != "object") continue;
      note_index(child, gpu.bus_id);
      for (const XmlElement& info : child.children) {
        if (info.get("name") == "GPUModel") gpu.name = info.get("value").substr(0, 60);
        if (info.get("name") == "NVIDIAUUID") gpu.uuid = info.get("value").substr(0, 60);
      }
    }
    t_.gpus.push_back(std::move(gpu));
  }

  void read_card(const XmlElement& object, PciDevice device) {
    NetworkCard card;
    static_cast<PciDevice&>(card) = std::move(device);
    for (const XmlElement& child : object.children) {
      const std::string name(child.get("name").substr(0, 32));
      const std::string_view kind = child.get("osdev_type");
      if (child.get("type") != "OSDev" || name.empty()) continue;
      if (kind == "3" || child.get("subtype") == "OpenFabrics")
        card.rdma.push_back(name);
      else if (kind == "2")
        card.interfaces.push_back(name);
    }
    const std::string ids = fmt::format("{:04x}:{:04x}", card.vendor, card.device);
    card.name = ids;
    t_.cards.push_back(std::move(card));
  }

  // A root belongs to the NUMA node that holds all its CPUs, where there is exactly one.
  void settle_numa() {
    for (PciRoot& root : t_.roots) {
      size_t n_near = 0;
      for (const NumaNode& node : t_.numa) {
        if (node.cpus.empty() || !node.cpus.intersects(root.cpus)) continue;
        ++n_near;
        root.numa = node.id;
      }
      if (n_near != 1) root.numa = -1;
    }
  }

  void note_index(const XmlElement& object, const std::string& bus_id) {
    bus_of_[std::string(object.get("gp_index"))] = bus_id;
  }

  void read_nvlinks(const XmlElement& matrix);

  const std::string& where_;
  Topology& t_;
  bool has_machine_ = false;
  size_t n_devices_ = 0;
  std::map<std::string, std::string> bus_of_;  // of a GPU, by gp_index
  std::vector<NvLinkEnd> links_;
};

std::vector<std::string> words_in(const XmlElement& matrix, std::string_view name, size_t most) {
  std::vector<std::string> words;
  for (const XmlElement& child : matrix.children) {
    if (child.name != name) continue;
    for (std::string& word : split(child.text, ' ')) {
      if (word.empty() || word == "\n") continue;
      if (words.size() == most) return words;
      words.push_back(std::move(word));
    }
  }
  return words;
}

// Bandwidths in MB/s between GPUs and switches, named by their index: "10 11", "OSDev:10
// PCIDev:11". The slowest there is, is one link's; what is no GPU is a switch.
void HwlocReader::read_nvlinks(const XmlElement& matrix) {
  if (matrix.get("name") != "NVLinkBandwidth") return;
  std::vector<std::string> devices = words_in(matrix, "indexes", kMostLinkedDevices);
  const size_t n = devices.size();
  const std::vector<std::string> words = words_in(matrix, "u64values", n * n + 1);
  if (words.size() != n * n)
    throw error(matrix,
                fmt::format("of {} devices holds {} values instead of {}", n, words.size(), n * n));
  for (std::string& device : devices) {
    const auto gpu = bus_of_.find(device.substr(device.find(':') + 1));
    device = gpu == bus_of_.end() ? "switch " + device : gpu->second;
  }
  uint64_t one_link = UINT64_MAX;
  std::vector<uint64_t> rates(n * n);
  for (size_t i = 0; i < n * n; ++i) {
    rates[i] =
        parse_count(words[i], fmt::format("{}:{}: NVLinkBandwidth", where_, matrix.line), 1 << 30);
    if (devices[i / n] == devices[i % n]) rates[i] = 0;  // to itself
    if (rates[i] > 0) one_link = std::min(one_link, rates[i]);
  }
  for (size_t i = 0; i < n * n; ++i)
    if (rates[i] > 0 && !devices[i / n].starts_with("switch"))
      links_.push_back(
          {devices[i / n], devices[i % n], static_cast<unsigned>(rates[i] / one_link)});
  t_.nvlink_source = "the file";
}

}  // namespace

HwlocReading read_hwloc_xml(std::string_view text, const std::string& where) {
  HwlocReading found;
  found.topology.source = where;
  HwlocReader reader(where, found.topology);
  reader.read(parse_xml(text, where));
  found.links = reader.links();
  return found;
}

Topology parse_hwloc_xml(std::string_view text, const std::string& where) {
  HwlocReading found = read_hwloc_xml(text, where);
  finish(found.topology, found.links);
  return std::move(found.topology);
}

}  // namespace weft::parallel
