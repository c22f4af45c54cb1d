// From topologies to node classes.
#include "launch/topo_cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <fstream>
#include <set>

#include "parallel/gather.h"
#include "parallel/gpu_distance.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using parallel::Gpu;
using parallel::NetworkCard;
using parallel::Topology;
using planner::NodeClass;

// Data sheets, for what a topology lacks; memory as the driver reports it.
struct GpuModel {
  std::string_view name;   // of planner::kGpuModels
  std::string_view chip;   // both must be in the GPU's name
  std::string_view board;  // empty: any
  double memory_gib;
  double nvlink_gbps;  // of all links, one direction
  double gbps_a_link;
  double pcie_gbps;
};
constexpr GpuModel kModels[] = {
    {"h200-sxm", "H200", "", 140.4, 450, 25, 64},  {"h100-pcie", "H100", "PCIe", 79.6, 0, 25, 64},
    {"h100-pcie", "H100", "NVL", 93.6, 0, 25, 64}, {"h100-sxm", "H100", "", 79.6, 450, 25, 64},
    {"a100-pcie", "A100", "PCI", 80, 0, 25, 32},   {"a100-sxm", "A100", "", 80, 300, 25, 32},
};

struct CardModel {
  uint32_t vendor;
  uint32_t device;
  double gbps;
};
constexpr CardModel kCards[] = {
    {parallel::kMellanox, 0x1021, 50},   // ConnectX-7
    {parallel::kMellanox, 0x101b, 25},   // ConnectX-6
    {parallel::kMellanox, 0x101e, 25},   // its virtual functions
    {parallel::kMellanox, 0x1019, 12.5}  // ConnectX-5 Ex
};
constexpr double kLatencyUs = 5;
constexpr double kEthernetGbps = 1.25;  // 10 Gbit/s, where nothing is known

double rounded(double value) { return std::round(value * 10) / 10; }

const GpuModel& model_of(const Gpu& gpu) {
  for (const GpuModel& model : kModels)
    if (gpu.name.find(model.chip) != std::string::npos &&
        gpu.name.find(model.board) != std::string::npos)
      return model;
  throw input_error(
      "GPU {} is a {}, which the planner does not know; it knows: {}. Write the cluster file by "
      "hand from the nearest of configs/clusters",
      gpu.bus_id, gpu.name, fmt::join(planner::kGpuModels, " "));
}

const GpuModel& model_of_all(const Topology& t) {
  const GpuModel& model = model_of(t.gpus.front());
  for (const Gpu& gpu : t.gpus)
    if (model_of(gpu).name != model.name)
      throw input_error("GPUs of several models, {} and {}: a node class has one",
                        t.gpus.front().name, gpu.name);
  return model;
}

void set_memory(const Topology& t, const GpuModel& model, NodeFacts& facts) {
  uint64_t least = UINT64_MAX;
  for (const Gpu& gpu : t.gpus) least = std::min(least, gpu.memory_bytes);
  facts.node.gpu_memory_gib = rounded(static_cast<double>(least) / static_cast<double>(1 << 30));
  if (least > 0) return;
  const bool small = t.gpus.front().name.find("40GB") != std::string::npos;
  facts.node.gpu_memory_gib = small ? 40 : model.memory_gib;
  facts.doubts.push_back("gpu_memory_gib is the GPU model's: the size was not found");
}

// The GPU that has fewest links: a stage runs at the pace of its slowest.
void set_links(const Topology& t, const GpuModel& model, NodeFacts& facts) {
  facts.node.pcie_gbps = model.pcie_gbps;
  for (const Gpu& gpu : t.gpus)
    if (gpu.link_gbps > 0)
      facts.node.pcie_gbps = std::min(facts.node.pcie_gbps, rounded(gpu.link_gbps));
  facts.node.nvlink_gbps = model.nvlink_gbps;
  if (t.gpus.size() == 1) return;
  if (t.nvlinks.empty() || !t.nvlinks_counted) {
    facts.doubts.push_back("nvlink_gbps is the GPU model's: NVLinks were not counted");
    return;
  }
  unsigned least = UINT_MAX;
  for (size_t a = 0; a < t.gpus.size(); ++a)
    for (size_t b = 0; b < a; ++b) least = std::min(least, t.nvlinks[a][b]);
  facts.node.nvlink_gbps = model.gbps_a_link * least;
  if (least == 0) facts.doubts.push_back("nvlink_gbps is 0: not all GPUs are joined by NVLink");
}

// What the kernel of this machine says of a card: "400 Gb/sec (4X NDR)", or Mbit/s. 0: nothing.
double live_rate(const NetworkCard& card) {
  double gbits = 0, mbits = 0;
  for (const std::string& name : card.rdma)
    if (std::ifstream("/sys/class/infiniband/" + name + "/ports/1/rate") >> gbits) return gbits / 8;
  for (const std::string& name : card.interfaces)
    if (std::ifstream("/sys/class/net/" + name + "/speed") >> mbits && mbits > 0)
      return mbits / 8000;
  return 0;
}

double card_rate(const NetworkCard& card, bool live, std::vector<std::string>& doubts) {
  if (const double rate = live ? live_rate(card) : 0; rate > 0) return rate;
  const std::string what = card.rdma.empty() ? card.bus_id : card.rdma.front();
  for (const CardModel& model : kCards)
    if (model.vendor == card.vendor && model.device == card.device) {
      doubts.push_back(fmt::format("nic_gbps is that of the model of card {}", what));
      return model.gbps;
    }
  doubts.push_back(fmt::format("nic_gbps is a guess: the rate of card {} is not known", what));
  return card.link_gbps > 0 && !card.rdma.empty() ? rounded(card.link_gbps) : kEthernetGbps;
}

// Cards with RDMA that are nearest to a GPU, where there are such; else one: a node reaches the
// others over the interface that its addresses are on.
std::vector<size_t> useful_cards(const Topology& t) {
  std::set<size_t> near;
  for (const Gpu& gpu : t.gpus)
    for (const size_t card : nearest_cards(t, gpu))
      if (!t.cards[card].rdma.empty()) near.insert(card);
  if (!near.empty()) return {near.begin(), near.end()};
  for (size_t card = 0; card < t.cards.size(); ++card)
    if (!t.cards[card].rdma.empty() || !t.cards[card].interfaces.empty()) return {card};
  if (!t.cards.empty()) return {0};
  return {};
}

void set_network(const Topology& t, NodeFacts& facts) {
  const bool live = t.source == "this machine";
  const std::vector<size_t> cards = useful_cards(t);
  facts.node.nic_count = cards.size();
  if (cards.empty()) return;
  facts.node.nic_gbps = 1e9;
  for (const size_t card : cards)
    facts.node.nic_gbps =
        std::min(facts.node.nic_gbps, rounded(card_rate(t.cards[card], live, facts.doubts)));
  facts.node.nic_latency_us = kLatencyUs;
  facts.doubts.push_back(fmt::format("nic_latency_us is {}: it was not measured", kLatencyUs));
}

// Ranks on CPUs: one a NUMA node that has both cores and memory.
void set_cpu_ranks(const Topology& t, NodeFacts& facts) {
  uint64_t memory = 0;
  size_t n_nodes = 0;
  for (const parallel::NumaNode& node : t.numa) {
    if (node.cpus.empty()) continue;
    ++n_nodes;
    memory += node.memory_bytes;
  }
  facts.node.gpu = "cpu";
  facts.node.gpus = std::max<size_t>(n_nodes, 1);
  facts.node.gpu_memory_gib = rounded(static_cast<double>(memory) / static_cast<double>(1 << 30) /
                                      static_cast<double>(facts.node.gpus));
  facts.node.pcie_gbps = 8;
  facts.doubts.push_back("pcie_gbps is 8 for ranks on CPUs: it was not measured");
  if (memory > 0) return;
  throw input_error("{}: has no GPU, and how much memory it has is not known", t.source);
}

// A node's facts as they travel.
struct Packed {
  std::array<char, 64> name{};
  std::array<char, 16> gpu{};
  size_t gpus = 0;
  size_t nic_count = 0;
  std::array<double, 5> numbers{};
  bool speaks = false;  // one rank a node
  std::array<char, 1024> doubts{};
};

template <size_t n>
void copy_text(const std::string& text, std::array<char, n>& to) {
  std::copy_n(text.begin(), std::min(text.size(), n - 1), to.begin());
}

constexpr double NodeClass::*kNumbers[] = {&NodeClass::gpu_memory_gib, &NodeClass::nvlink_gbps,
                                           &NodeClass::pcie_gbps, &NodeClass::nic_gbps,
                                           &NodeClass::nic_latency_us};

Packed pack(const parallel::MpiSession& session, const NodeFacts& facts) {
  Packed packed;
  copy_text(facts.node.name, packed.name);
  copy_text(facts.node.gpu, packed.gpu);
  packed.gpus = facts.node.gpus;
  packed.nic_count = facts.node.nic_count;
  for (size_t i = 0; i < packed.numbers.size(); ++i) packed.numbers[i] = facts.node.*kNumbers[i];
  packed.speaks = session.node_rank() == 0;
  copy_text(fmt::format("{}", fmt::join(facts.doubts, "\n")), packed.doubts);
  return packed;
}

NodeClass unpack(const Packed& packed) {
  NodeClass node;
  node.name = packed.name.data();
  node.gpu = packed.gpu.data();
  node.gpus = packed.gpus;
  node.nic_count = packed.nic_count;
  for (size_t i = 0; i < packed.numbers.size(); ++i) node.*kNumbers[i] = packed.numbers[i];
  return node;
}

}  // namespace

NodeFacts node_facts(const Topology& t) {
  NodeFacts facts;
  facts.node.gpus = t.gpus.size();
  if (t.gpus.empty()) {
    set_cpu_ranks(t, facts);
  } else {
    const GpuModel& model = model_of_all(t);
    facts.node.gpu = model.name;
    set_memory(t, model, facts);
    set_links(t, model, facts);
  }
  set_network(t, facts);
  facts.node.name = fmt::format("{}-{}", facts.node.gpu, facts.node.gpus);
  return facts;
}

planner::ClusterSpec make_cluster(const std::string& name, const std::vector<NodeClass>& nodes) {
  planner::ClusterSpec cluster;
  cluster.name = name;
  for (const NodeClass& node : nodes) {
    const auto same =
        std::find_if(cluster.nodes.begin(), cluster.nodes.end(), [&](NodeClass known) {
          known.count = node.count;
          known.name = node.name;
          return known == node;
        });
    if (same != cluster.nodes.end()) {
      same->count += node.count;
      continue;
    }
    NodeClass added = node;
    const auto taken = [&](const NodeClass& known) { return known.name == added.name; };
    for (size_t k = 2; std::any_of(cluster.nodes.begin(), cluster.nodes.end(), taken); ++k)
      added.name = fmt::format("{}-kind{}", node.name, k);
    cluster.nodes.push_back(std::move(added));
  }
  return cluster;
}

GatheredFacts gather_facts(const parallel::MpiSession& session, const NodeFacts& mine) {
  GatheredFacts all;
  for (const Packed& packed : gather(session, pack(session, mine))) {
    if (!packed.speaks) continue;
    all.nodes.push_back(unpack(packed));
    for (const std::string& doubt : split(packed.doubts.data(), '\n'))
      if (!doubt.empty() &&
          std::find(all.doubts.begin(), all.doubts.end(), doubt) == all.doubts.end())
        all.doubts.push_back(doubt);
  }
  return all;
}

}  // namespace weft::launch
