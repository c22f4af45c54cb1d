// Both XML readers: what they make of made and damaged files. Placement over these nodes is in
// placement_test.cpp.
#include "parallel/topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/gpu_distance.h"
#include "parallel/nccl_hints.h"
#include "parallel/topology_compare.h"
#include "parallel/topology_sources.h"
#include "runtime/base/file.h"
#include "tests/parallel/topology_files.h"
#include "tests/support/error_text.h"

namespace weft::parallel {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos)
    ADD_FAILURE() << from << " is not in the file";
  else
    text.replace(at, from.size(), to);
  return text;
}

TEST(CpuSet, ReadsTheMasksOfAllThree) {
  EXPECT_EQ(CpuSet::parse_mask("0x000000ff,,0x00000001", "x").text(), "0,64-71");   // hwloc
  EXPECT_EQ(CpuSet::parse_mask("00000000,0000ffff,ffffffff", "x").text(), "0-47");  // NCCL
  EXPECT_EQ(CpuSet::parse_mask("0x0", "x").text(), "none");
  EXPECT_EQ(CpuSet::parse_mask("80000000,00000000", "x").text(), "63");
  EXPECT_EQ(CpuSet::parse_mask("0x5", "x").text(), "0,2");
  EXPECT_ERROR(CpuSet::parse_mask("0xf...f", "a.xml:3: cpuset"), "a.xml:3: cpuset", "0xf...f");
  EXPECT_ERROR(CpuSet::parse_mask("", "x"), "no mask");
  EXPECT_ERROR(CpuSet::parse_mask("123456789", "x"), "8 hexadecimal digits");
  std::string far = "0x1";
  for (int i = 0; i < 256; ++i) far += ",0x0";
  EXPECT_ERROR(CpuSet::parse_mask(far, "x"), "CPU 8192", "at most 8192");
  EXPECT_ERROR(CpuSet::parse_mask(std::string(1 << 20, ','), "x"), "characters");
}

TEST(CpuSet, KeepsEqualSetsEqual) {
  const CpuSet low = CpuSet::range(0, 3);
  const CpuSet high = CpuSet::range(100, 131);
  EXPECT_EQ((low | high) - high, low);
  EXPECT_EQ((low | high) & high, high);
  EXPECT_TRUE((low & high).empty());
  EXPECT_EQ((low | high).count(), 34u);
  EXPECT_TRUE((low | high).contains(high));
  EXPECT_FALSE(low.contains(low | high));
  EXPECT_FALSE(low.intersects(high));
}

TEST(BusId, IsOneForAllSources) {
  EXPECT_EQ(normal_bus_id("00000000:1B:00.0"), "0000:1b:00.0");  // NVML
  EXPECT_EQ(normal_bus_id("1b:00.0"), "0000:1b:00.0");
  EXPECT_EQ(normal_bus_id("10001:00:1f.7"), "10001:00:1f.7");
  for (const char* bad :
       {"", "1b:00", "1b", "0000:1b:00.0:1", "x:1b:00.0", "1b:00.10", "0000:1bb:00.0"})
    EXPECT_EQ(normal_bus_id(bad), "") << bad;
}

TEST(HwlocXml, DgxH100) {
  const Topology t = made("dgx-h100");
  EXPECT_EQ(t.n_packages, 2u);
  EXPECT_EQ(t.cores.size(), 112u);
  EXPECT_EQ(t.cpus.count(), 224u);
  EXPECT_EQ(t.numa.size(), 2u);
  ASSERT_EQ(t.gpus.size(), 8u);
  EXPECT_EQ(t.cards.size(), 9u);
  EXPECT_EQ(t.n_nvswitches, 4u);
  const Gpu& gpu = t.gpus[4];
  EXPECT_EQ(gpu.bus_id, "0000:9d:00.0");
  EXPECT_EQ(gpu.name, "H100 SXM5 80GB");
  EXPECT_EQ(t.roots[gpu.root].name, "0000:9a");
  EXPECT_EQ(t.roots[gpu.root].numa, 1);
  EXPECT_EQ(nearest_cpus(t, gpu).text(), "56-111,168-223");
  EXPECT_EQ(gpu.switches,
            (std::vector<std::string>{"0000:9a:01.0", "0000:9b:00.0", "0000:9c:00.0"}));
  EXPECT_NEAR(gpu.link_gbps, 63.0, 0.1);
  const std::vector<size_t> near = nearest_cards(t, gpu);
  ASSERT_EQ(near.size(), 1u);
  EXPECT_EQ(t.cards[near[0]].rdma, std::vector<std::string>{"mlx5_4"});
  EXPECT_EQ(t.nvlinks[0][7], 1u) << "through the NVSwitches seen";
  EXPECT_FALSE(t.nvlinks_counted);
  EXPECT_TRUE(t.doubts.empty()) << t.doubts.front();
}

TEST(HwlocXml, DistancesFollowTheTree) {
  const Topology bridges = made("two-per-bridge");
  const auto way = [](const Topology& t, size_t a, size_t b) {
    return distance_name(pci_distance(t, t.gpus[a], t.gpus[b]));
  };
  EXPECT_EQ(way(bridges, 0, 1), "switch");
  EXPECT_EQ(way(bridges, 0, 2), "node");
  EXPECT_EQ(way(bridges, 3, 4), "across");
  EXPECT_EQ(way(made("flat-bus"), 0, 3), "root");
  const Topology sixteen = made("sixteen-gpus");
  EXPECT_LT(pair_cost(sixteen, 0, 1), pair_cost(sixteen, 0, 2)) << "one switch against two";
  EXPECT_LT(pair_cost(sixteen, 0, 2), pair_cost(sixteen, 0, 4));
}

TEST(HwlocXml, SaysWhatIsDoubtful) {
  EXPECT_DOUBT(made("flat-bus"), "flat bus");
  EXPECT_DOUBT(made("flat-bus"), "NUMA node of GPU 0000:00:05.0");
  EXPECT_DOUBT(made("stripped-cores"), "24 are guessed from the numbers of 48 CPUs");
  EXPECT_DOUBT(made("amd-only"), "4 of AMD");
  EXPECT_TRUE(made("amd-only").gpus.empty());
  const std::string text = made_text("two-per-bridge");
  EXPECT_DOUBT(parse_topology(replaced(text, "version=\"2.0\"", "version=\"3.0\""), "x.xml"),
               "hwloc's XML version 3.0");
  // A mask written for a larger machine.
  const Topology beyond = parse_topology(
      replaced(text,
               "os_index=\"0\" cpuset=\"0x0000000f,0xff000fff\" complete_cpuset=\"0x0000000f,"
               "0xff000fff\" nodeset=\"0x00000001\" complete_nodeset=\"0x00000001\" "
               "local_memory",
               "os_index=\"0\" cpuset=\"0x00ff000f,0xff000fff\" local_memory"),
      "x.xml");
  EXPECT_DOUBT(beyond, "NUMA node 0 names the CPUs 48-55");
}

// A cgroup that leaves a package no CPU.
TEST(HwlocXml, DoubtsGpusWhoseCpusAreTaken) {
  std::string text = made_text("swapped-numa");
  for (size_t at = 0; (at = text.find("\"0x0000ff00\"", at)) != std::string::npos; ++at)
    text.replace(at, 12, "\"0x00000000\"");
  for (const char* set : {"\"0x0000ffff\"", "\"0x0000ffff\"", "\"0x0000ffff\""})
    text = replaced(text, set, "\"0x000000ff\"");
  const Topology t = parse_topology(text, "x.xml");
  EXPECT_DOUBT(t, "no CPU that may be used is known to be near GPU 0000:b4:00.0");
  EXPECT_EQ(nearest_cpus(t, t.gpus[1]).text(), "0-7");
}

TEST(HwlocXml, GuessedCoresArePairsOfThreads) {
  const Topology whole = made("two-per-bridge");
  const Topology stripped = made("stripped-cores");
  EXPECT_TRUE(whole.has_cores);
  EXPECT_FALSE(stripped.has_cores);
  EXPECT_EQ(whole.cores, stripped.cores);
}

TEST(HwlocXml, ReadsNamesAndLinksOfItsDevices) {
  std::string text = made_text("one-gpu");
  text =
      replaced(text, "pci_link_speed=\"63.015385\" gp_index=\"1\"/>",
               "pci_link_speed=\"63.015385\" gp_index=\"1\"><object type=\"OSDev\" "
               "gp_index=\"900\" name=\"nvml0\" osdev_type=\"5\"><info name=\"GPUModel\" "
               "value=\"Made 40\"/><info name=\"NVIDIAUUID\" value=\"GPU-1\"/></object></object>");
  const Topology t = parse_topology(text, "x.xml");
  ASSERT_EQ(t.gpus.size(), 1u);
  EXPECT_EQ(t.gpus[0].name, "Made 40");
  EXPECT_EQ(t.gpus[0].uuid, "GPU-1");
}

std::string linked(const std::string& values) {
  return replaced(
      made_text("swapped-numa"), "</topology>",
      "<distances2hetero name=\"NVLinkBandwidth\"><indexes>PCIDev:" + gpu_index("swapped-numa", 0) +
          " PCIDev:" + gpu_index("swapped-numa", 1) + " PCIDev:9999 </indexes><u64values>" +
          values + "</u64values></distances2hetero></topology>");
}

TEST(HwlocXml, NvLinkBandwidthsAreLinks) {
  const Topology direct = parse_topology(linked("0 100 0 100 0 25 0 25 0 "), "x.xml");
  EXPECT_EQ(direct.nvlinks[0][1], 4u);
  const Topology switched = parse_topology(linked("0 0 50 0 0 75 50 75 0 "), "x.xml");
  EXPECT_EQ(switched.nvlinks[1][0], 1u) << "50 and 75 to a switch: 1 and 1 of the slowest";
  EXPECT_ERROR(parse_topology(linked("0 1 "), "x.xml"), "of 3 devices holds 2 values instead of 9");
  EXPECT_ERROR(parse_topology(linked("0 x 0 0 0 0 0 0 0"), "x.xml"), "\"x\"");
}

TEST(HwlocXml, RefusesWhatCantBe) {
  const std::string text = made_text("one-gpu");
  const auto bad = [&](const std::string& from, const std::string& to) {
    return replaced(text, from, to);
  };
  EXPECT_ERROR(parse_topology("", "x.xml"), "x.xml:1:1", "no element");
  EXPECT_ERROR(parse_topology(text.substr(0, text.size() / 2), "x.xml"), "x.xml:");
  EXPECT_ERROR(parse_topology("<top/>", "x.xml"), "<top>", "hwloc", "NCCL");
  EXPECT_ERROR(parse_topology("<topology/>", "x.xml"), "hwloc 1");
  EXPECT_ERROR(parse_topology(bad("version=\"2.0\"", "version=\"9.0\""), "x.xml"), "\"9.0\"");
  EXPECT_ERROR(parse_topology("<topology version=\"2.0\"/>", "x.xml"), "Machine");
  EXPECT_ERROR(parse_topology(bad("0302 [10de", "03zz [10de"), "x.xml"), "pci_type", "03zz");
  EXPECT_ERROR(parse_topology(bad("pci_busid=\"0000:01:00.0\"", "pci_busid=\"here\""), "x.xml"),
               "pci_busid \"here\"");
  EXPECT_ERROR(parse_topology(bad("bridge_pci=\"0000:[00-00]\"", ""), "x.xml"), "bridge_pci");
  EXPECT_ERROR(parse_topology(bad("local_memory=\"68", "local_memory=\"-68"), "x.xml"),
               "local_memory");
}

TEST(Xml, HostileDocumentsAreRefused) {
  EXPECT_ERROR(parse_topology("<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "x.xml"),
               "declarations within the document");
  EXPECT_ERROR(parse_topology("<!DOCTYPE a SYSTEM \"b.dtd\"><a>&b;</a>", "x.xml"), "\"b\"");
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "<a>";
  EXPECT_ERROR(parse_topology(deep, "x.xml"), "more than 100 deep");
  std::string wide = "<a>";
  for (int i = 0; i < 400'001; ++i) wide += "<b/>";
  EXPECT_ERROR(parse_topology(wide + "</a>", "x.xml"), "more than 400000 elements");
  EXPECT_ERROR(parse_topology(std::string("<a b=\"\0\"/>", 10), "x.xml"), "x.xml:1:");
  EXPECT_ERROR(read_topology("/none.xml"), "/none.xml");
}

TEST(NcclXml, NamesLinksAndCards) {
  const Topology t = made("nccl-nvlink-pairs");
  ASSERT_EQ(t.gpus.size(), 4u);
  EXPECT_EQ(t.nvlinks[0][2], 12u);
  EXPECT_EQ(t.nvlinks[0][1], 0u);
  EXPECT_NEAR(t.gpus[0].link_gbps, 31.5, 0.1);
  ASSERT_EQ(t.cards.size(), 1u);
  EXPECT_EQ(t.cards[0].rdma, std::vector<std::string>{"mlx5_0"});
  EXPECT_EQ(t.roots[t.gpus[3].root].numa, 1);
  EXPECT_EQ(nearest_cpus(t, t.gpus[3]).text(), "8-15");
}

TEST(NcclXml, SwitchesJoinAndMasksMayBeSwapped) {
  const Topology t = made("nccl-swapped");
  EXPECT_EQ(t.nvlinks[0][1], 4u) << "of the GPU that has fewer";
  EXPECT_EQ(nearest_cpus(t, t.gpus[0]).text(), "8-15");
  EXPECT_DOUBT(t, "NUMA nodes 0 and 1 both claim the CPUs 8");
}

TEST(NcclXml, RefusesWhatCantBe) {
  const std::string text = made_text("nccl-nvlink-pairs");
  const auto bad = [&](const std::string& from, const std::string& to) {
    return replaced(text, from, to);
  };
  EXPECT_ERROR(parse_topology(bad("system version=\"1\"", "system version=\"7\""), "x.xml"),
               "version \"7\" is not 1");
  EXPECT_ERROR(parse_topology("<system version=\"1\"/>", "x.xml"), "<cpu>");
  EXPECT_ERROR(parse_topology("<system version=\"1\"><cpu numaid=\"0\"/></system>", "x.xml"),
               "affinity");
  EXPECT_ERROR(parse_topology(bad("numaid=\"1\"", "numaid=\"0\""), "x.xml"), "numaid 0", "twice");
  EXPECT_ERROR(parse_topology(bad("numaid=\"1\"", "numaid=\"two\""), "x.xml"), "\"two\"");
  EXPECT_ERROR(parse_topology(bad("affinity=\"0000", "affinity=\"00xx"), "x.xml"), "affinity");
  EXPECT_ERROR(parse_topology(bad("busid=\"0000:65:00.0\"", "busid=\"0000:17:00.0\""), "x.xml"),
               "0000:17:00.0 is there twice");
  EXPECT_ERROR(parse_topology(bad("class=\"0x030200\"", "class=\"gpu\""), "x.xml"), "\"gpu\"");
  EXPECT_ERROR(parse_topology(bad("count=\"12\"", "count=\"99999999999999999999\""), "x.xml"),
               "count");
  EXPECT_ERROR(
      parse_topology(bad("<cpu numaid=\"1\"", "<cpu host_hash=\"0x2\" numaid=\"1\""), "x.xml"),
      "another host");
}

TEST(NcclHints, LeaveOutWhatIsThereForSomethingElse) {
  const Topology dgx = made("dgx-h100");
  EXPECT_EQ(nccl_hints(dgx, {0, 5}, {}).ib_hca, "=mlx5_0,mlx5_5");
  EXPECT_EQ(nccl_hints(dgx, {0, 1, 2, 3, 4, 5, 6, 7}, {}).ib_hca,
            "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7");
  EXPECT_EQ(nccl_hints(made("two-per-bridge"), {0, 2, 4, 6}, {}).ib_hca, "") << "all of them";
  const Topology plain = made("no-gpu");
  EXPECT_EQ(nccl_hints(plain, {}, {"docker0", "eth0"}).socket_ifname, "=eth0");
  EXPECT_EQ(nccl_hints(plain, {}, {"eth0"}).socket_ifname, "") << "nothing else is there";
  EXPECT_EQ(nccl_hints(plain, {}, {"veth1", "veth2"}).socket_ifname, "") << "no card is up";
  for (const std::string& name : interfaces_up()) EXPECT_NE(name, "lo");
}

// A file for another machine, as NCCL_TOPO_FILE may name one.
TEST(Compare, FileAgainstMachine) {
  const Topology machine = made("swapped-numa");
  EXPECT_TRUE(differences(machine, machine).empty());
  std::string all;
  for (const std::string& text : differences(machine, made("nccl-nvlink-pairs")))
    all += text + "\n";
  for (const char* part :
       {"gives NUMA node 0 the CPUs 0-7, this machine 8-15",
        "has a GPU 0000:17:00.0, this machine does not", "lacks GPU 0000:18:00.0"})
    EXPECT_NE(all.find(part), std::string::npos) << part << " is not in\n" << all;
}

}  // namespace
}  // namespace weft::parallel
