// NCCL's topology XML into a topology: <system> of <cpu> (a NUMA node) of nested <pci>. It names
// neither root complexes nor cores: a <cpu> stands for its root.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "parallel/topology_sources.h"
#include "parallel/xml_tree.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

constexpr size_t kMostCpuElements = 1024;
constexpr size_t kMostDevices = 4096;

class NcclReader {
 public:
  NcclReader(const std::string& where, Topology& topology) : where_(where), t_(topology) {}

  void read(const XmlElement& document) {
    const std::string_view version = document.get("version");
    if (version != "1")
      throw error(document, fmt::format("version \"{}\" is not 1", version.substr(0, 20)));
    t_.source += " (NCCL topology XML 1)";
    for (const XmlElement& child : document.children)
      if (child.name == "cpu") read_cpu(child);
    if (t_.roots.empty()) throw error(document, "has no <cpu>");
    if (t_.cpus.empty())
      throw error(document, "gives no <cpu> an affinity: which CPUs there are is not known");
  }

  const std::vector<NvLinkEnd>& links() const { return links_; }

 private:
  Error error(const XmlElement& at, std::string_view what) const {
    return input_error("{}:{}: <{}> {}", where_, at.line, at.name, what);
  }

  std::string place(const XmlElement& at, std::string_view attribute) const {
    return fmt::format("{}:{}: {}", where_, at.line, attribute);
  }

  void read_cpu(const XmlElement& cpu) {
    if (t_.roots.size() == kMostCpuElements) throw error(cpu, "is one too many");
    const std::string_view host = cpu.get("host_hash");
    if (!t_.roots.empty() && host != host_)
      throw error(cpu, "is of another host than the first; one host is read");
    host_ = host;
    PciRoot root;
    const std::string_view id = cpu.get("numaid");
    if (id != "-1") root.numa = static_cast<int>(parse_count(id, place(cpu, "numaid"), 1 << 20));
    root.name = fmt::format("cpu {}", id.substr(0, 10));
    if (const std::string* mask = cpu.find("affinity"))
      root.cpus = CpuSet::parse_mask(*mask, place(cpu, "affinity"));
    t_.cpus = t_.cpus | root.cpus;
    if (root.cpus.empty())
      t_.doubts.push_back(fmt::format("NUMA node {} has no affinity: its CPUs are not known", id));
    add_numa(cpu, root);
    t_.roots.push_back(std::move(root));
    for (const XmlElement& child : cpu.children) read_under(child, nullptr, {});
  }

  void add_numa(const XmlElement& cpu, const PciRoot& root) {
    if (root.numa < 0) return;
    const bool twice = std::any_of(t_.numa.begin(), t_.numa.end(),
                                   [&](const NumaNode& node) { return node.id == root.numa; });
    if (twice) throw error(cpu, fmt::format("numaid {} is there twice", root.numa));
    t_.numa.push_back({root.numa, root.cpus, 0});
  }

  // `device` is the <pci> around the element, where there is one.
  void read_under(const XmlElement& element, const PciDevice* device,
                  const std::vector<std::string>& switches) {
    if (element.name == "pci") return read_pci(element, switches);
    if (element.name == "nic") return read_nic(element, device);
    if (device != nullptr && element.name == "gpu")
      for (const XmlElement& child : element.children)
        if (child.name == "nvlink") read_nvlink(child, device->bus_id);
  }

  uint32_t hex(const XmlElement& at, std::string_view attribute, uint32_t missing) const {
    const std::string* text = at.find(attribute);
    if (text == nullptr) return missing;
    std::string_view digits = *text;
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    uint32_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, failed] = std::from_chars(digits.data(), end, value, 16);
    if (failed != std::errc() || stop != end)
      throw error(
          at, fmt::format("{} \"{}\" is no hexadecimal number", attribute, text->substr(0, 40)));
    return value;
  }

  // "32.0 GT/s PCIe" and a width in lanes; a byte costs 8 transfers, and from 8 GT/s on 130/128
  // more.
  double link_speed(const XmlElement& pci) const {
    const std::string speed(pci.get("link_speed").substr(0, 40));
    const double rate = std::strtod(speed.c_str(), nullptr);
    const std::string* width = pci.find("link_width");
    if (width == nullptr || !(rate > 0 && rate < 1000)) return 0;
    const size_t lanes = parse_count(*width, place(pci, "link_width"), 1024);
    return rate / 8 * (rate < 8 ? 0.8 : 128.0 / 130.0) * static_cast<double>(lanes);
  }

  void read_pci(const XmlElement& pci, std::vector<std::string> switches) {
    if (++n_devices_ > kMostDevices) throw error(pci, "is one PCI device too many");
    PciDevice device;
    device.bus_id = normal_bus_id(pci.get("busid"));
    if (device.bus_id.empty())
      throw error(pci, fmt::format("busid \"{}\" is not as \"0000:1b:00.0\"",
                                   pci.get("busid").substr(0, 40)));
    device.pci_class = hex(pci, "class", 0) >> 8;  // the last byte is the interface
    const bool is_gpu = is_gpu_class(device.pci_class);
    device.vendor = hex(pci, "vendor", is_gpu ? kNvidia : 0);  // may be left out
    device.device = hex(pci, "device", 0);
    device.root = t_.roots.size() - 1;
    device.switches = switches;
    device.link_gbps = link_speed(pci);
    const size_t n_cards = t_.cards.size();
    if (is_network_class(device.pci_class)) add_card(device);
    if (is_gpu) add_gpu(device);
    if (device.pci_class == 0x0604) switches.push_back(device.bus_id);
    for (const XmlElement& child : pci.children) read_under(child, &device, switches);
    if (t_.cards.size() > n_cards && device.pci_class != 0x0604) name_card(pci, n_cards);
  }

  void add_gpu(const PciDevice& device) {
    Gpu gpu;
    static_cast<PciDevice&>(gpu) = device;
    gpu.name = device.device == 0 ? "NVIDIA GPU" : gpu_name(device.vendor, device.device);
    if (device.vendor == kAmd || device.vendor == kIntel) t_.other_gpus.push_back(gpu);
    if (device.vendor == kNvidia) t_.gpus.push_back(std::move(gpu));
  }

  void add_card(const PciDevice& device) {
    NetworkCard card;
    static_cast<PciDevice&>(card) = device;
    card.name = fmt::format("{:04x}:{:04x}", device.vendor, device.device);
    t_.cards.push_back(std::move(card));
  }

  // <nic><net name="mlx5_0"/></nic> within the card's <pci>.
  void name_card(const XmlElement& pci, size_t at) {
    for (const XmlElement& nic : pci.children)
      for (const XmlElement& net : nic.children)
        if (nic.name == "nic" && net.name == "net" && !net.get("name").empty())
          t_.cards[at].rdma.emplace_back(net.get("name").substr(0, 32));
  }

  // A <nic> right under a <cpu> has no place on the PCI bus, so nothing is near it.
  void read_nic(const XmlElement& nic, const PciDevice* device) {
    if (device != nullptr) return;
    for (const XmlElement& net : nic.children)
      if (net.name == "net")
        t_.doubts.push_back(fmt::format("network device {} has no place on the PCI bus",
                                        net.get("name").substr(0, 32)));
  }

  void read_nvlink(const XmlElement& link, const std::string& gpu) {
    const size_t n = parse_count(link.get("count"), place(link, "count"), 1000);
    const std::string target = normal_bus_id(link.get("target"));
    const bool to_gpu = hex(link, "tclass", 0) >> 16 == 3;
    links_.push_back({gpu, to_gpu ? target : "switches", static_cast<unsigned>(n)});
    t_.nvlink_source = "the file";
  }

  const std::string& where_;
  Topology& t_;
  std::string host_;
  size_t n_devices_ = 0;
  std::vector<NvLinkEnd> links_;
};

}  // namespace

Topology parse_nccl_xml(std::string_view text, const std::string& where) {
  Topology topology;
  topology.source = where;
  NcclReader reader(where, topology);
  reader.read(parse_xml(text, where));
  finish(topology, reader.links());
  return topology;
}

}  // namespace weft::parallel
