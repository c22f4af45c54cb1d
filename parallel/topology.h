// One host as placement sees it: CPUs by core and NUMA node, GPUs and network cards by their way up
// the PCI tree, and what of it is doubtful. The same from the live machine, an hwloc XML and an
// NCCL topology XML (topology_sources.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/cpu_set.h"

namespace weft::parallel {

inline constexpr uint32_t kNvidia = 0x10de;  // PCI vendors
inline constexpr uint32_t kAmd = 0x1002;
inline constexpr uint32_t kIntel = 0x8086;
inline constexpr uint32_t kMellanox = 0x15b3;

struct NumaNode {
  int id = 0;
  CpuSet cpus;                // may be empty: memory alone
  uint64_t memory_bytes = 0;  // 0: unknown
};

// Where PCI devices meet the CPUs. NCCL's files name no root complex: there it is a <cpu>.
struct PciRoot {
  std::string name;  // "0000:18": domain and first bus
  CpuSet cpus;       // nearest CPUs; empty: unknown
  int numa = -1;     // -1: unknown, or several
};

struct PciDevice {
  std::string bus_id;  // "0000:1b:00.0"
  uint32_t vendor = 0;
  uint32_t device = 0;
  uint32_t pci_class = 0;  // base and sub-class, 0x0302
  std::string name;
  size_t root = 0;                    // index into Topology::roots
  std::vector<std::string> switches;  // bus ids of the bridges on the way, from the root down
  double link_gbps = 0;               // GB/s each way; 0: unknown
};

struct Gpu : PciDevice {
  std::string uuid;           // "GPU-…"; empty: unknown
  uint64_t memory_bytes = 0;  // 0: unknown
  std::vector<std::string> mig_uuids;
  bool usable = true;  // false: on the PCI bus, but the driver doesn't show it to this process
};

struct NetworkCard : PciDevice {
  std::vector<std::string> rdma;        // "mlx5_0"
  std::vector<std::string> interfaces;  // "eth0"
};

struct Topology {
  std::string source;          // "this machine", "dgx.xml (hwloc XML 2.0)"
  std::string product;         // of the machine, where known
  size_t n_packages = 0;       // 0: unknown
  CpuSet cpus;                 // those that may be used
  bool has_cores = true;       // false: `cores` is a guess from the CPUs' numbers
  std::vector<CpuSet> cores;   // hardware threads of each core, neighbours beside each other
  std::vector<NumaNode> numa;  // by id
  std::vector<PciRoot> roots;
  std::vector<Gpu> gpus;  // NVIDIA's, by bus id: CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID
  std::vector<NetworkCard> cards;     // by bus id
  std::vector<PciDevice> other_gpus;  // of AMD and Intel
  size_t n_nvswitches = 0;
  // [gpus][gpus] NVLinks of each pair; empty: unknown. Through switches: the links of the GPU that
  // has fewer.
  std::vector<std::vector<unsigned>> nvlinks;
  bool nvlinks_counted = true;      // false: 1 stands for some
  std::string nvlink_source;        // "NVML"
  std::vector<std::string> doubts;  // one sentence each, for people
};

// What a GPU says of its NVLinks: `n_links` of them lead to `to`, the bus id of another GPU, or any
// other name for a switch.
struct NvLinkEnd {
  std::string gpu;  // bus id
  std::string to;
  unsigned n_links = 0;
};

// CPUs nearest a device, those that may be used: its root's, else all.
CpuSet nearest_cpus(const Topology& topology, const PciDevice& device);

// "0000:1b:00.0" from what files and drivers write ("00000000:1B:00.0", "1b:00.0"); empty where it
// is no bus id.
std::string normal_bus_id(std::string_view text);

// "H100 SXM5 80GB" where the ids are known, else "10de:2330".
std::string gpu_name(uint32_t vendor, uint32_t device);

bool is_gpu_class(uint32_t pci_class);
bool is_network_class(uint32_t pci_class);

// The last step of every source: orders devices, keeps to the CPUs that may be used, guesses cores
// where a file has none, links GPUs through the NVSwitches seen, and says what is doubtful. Throws
// Error where nothing can be placed: no CPUs, a bus id twice.
void finish(Topology& topology, std::span<const NvLinkEnd> links);

// [gpus][gpus] links of each pair; empty where no link of a GPU is known.
std::vector<std::vector<unsigned>> nvlink_matrix(const Topology& topology,
                                                 std::span<const NvLinkEnd> links);

}  // namespace weft::parallel
