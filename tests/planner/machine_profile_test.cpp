// Profiles on disk: the shipped ones, what is read back, and what is refused.
#include "planner/machine_profile.h"

#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

// A small whole profile; each test breaks one line of it.
std::string small_profile() {
  return "version: 1\n"
         "name: tiny\n"
         "rates:\n  memory_gib: 8\n  memory_gbps: 100\n  bf16_tflops: 10\n"
         "products:\n  - format: bf16\n    source: a test\n    tokens: [1, 31]\n"
         "    outputs: [64, 128]\n    inputs: [33]\n"
         "    microseconds:\n      - [1, 2]\n      - [3, 4]\n"
         "decode_attention:\n  - kv: bf16\n    source: a test\n    gbps: 90\n    tile_us: 0.5\n"
         "    most_context: 1024\n"
         "prefill_attention:\n  - source: a test\n    tflops: 5\n    half_tokens: 100\n"
         "    most_context: 1024\n"
         "send_recv_inside:\n  - source: a test\n    bytes: [1024]\n    microseconds: [5]\n"
         "send_recv_across:\n  - source: a test\n    bytes: [1024]\n    microseconds: [15]\n";
}

std::string with(const std::string& part, const std::string& instead) {
  std::string text = small_profile();
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), instead);
}

std::string refused(const std::string& text) {
  return error_of([&] { parse_machine_profile(text, "tiny.yaml", "."); });
}

TEST(MachineProfile, ShippedOnesNameTheSourceOfEveryCurve) {
  for (const std::string gpu : {"h100-sxm", "h200-sxm", "a100-sxm", "h100", "h200"}) {
    const MachineProfile profile = machine(gpu);
    for (const ProductCurve& curve : profile.products) EXPECT_NE(curve.source, "");
    for (const DecodeAttentionCurve& curve : profile.decode_attention) EXPECT_NE(curve.source, "");
    EXPECT_NE(profile.prefill_attention.at(0).source, "");
    for (const AllReduceCurve& reduce : profile.all_reduce) EXPECT_NE(reduce.curve.source, "");
    EXPECT_NE(profile.send_recv_inside.at(0).source, "");
    EXPECT_NE(profile.send_recv_across.at(0).source, "");
  }
}

TEST(MachineProfile, TakesCurvesOfItsBaseAndKeepsItsOwnLinks) {
  const MachineProfile h100 = machine("h100-sxm");
  const MachineProfile h200 = machine("h200-sxm");
  EXPECT_EQ(h200.base, "h100-sxm");
  EXPECT_EQ(h200.curve_rates, h100.rates);
  EXPECT_EQ(h200.products, h100.products);
  EXPECT_EQ(h200.rates.memory_gbps, 4800);
  EXPECT_EQ(h200.all_reduce.size(), h100.all_reduce.size());  // two implementations, three sizes
  EXPECT_NE(h200.all_reduce.at(0).curve, h100.all_reduce.at(0).curve);
}

TEST(MachineProfile, IsReadBackAsItWasWritten) {
  const MachineProfile h100 = machine("h100-sxm");
  EXPECT_EQ(parse_machine_profile(to_yaml(h100), "again", "."), h100);
  const MachineProfile tiny = parse_machine_profile(small_profile(), "tiny.yaml", ".");
  EXPECT_EQ(parse_machine_profile(to_yaml(tiny), "again", "."), tiny);
}

// One rank that was calibrated alone has no links, and what weft took there is read back too.
TEST(MachineProfile, HoldsWhatACalibrationMeasures) {
  std::string text = small_profile();
  text = text.substr(0, text.find("send_recv_inside"));
  text +=
      "overheads:\n  - source: a test\n    step_us: 20\n    layer_us: 5.5\n    pass_gbps: 4\n"
      "    sample_us: 3\n    sample_gbps: 2\n"
      "  - ranks: 2\n    source: a test\n    step_us: 30\n    layer_us: 7\n    pass_gbps: 3\n"
      "    sample_us: 0\n    sample_gbps: 2\n    wait_share: 0.25\n";
  const MachineProfile profile = parse_machine_profile(text, "tiny.yaml", ".");
  EXPECT_TRUE(profile.send_recv_inside.empty());
  ASSERT_EQ(profile.overheads.size(), 2u);
  EXPECT_EQ(profile.overheads[0].wait_share, 0);
  EXPECT_EQ(profile.overheads[1].wait_share, 0.25);
  EXPECT_EQ(profile.overheads[0].layer_us, 5.5);
  EXPECT_EQ(profile.overheads[1].ranks, 2u);
  EXPECT_EQ(parse_machine_profile(to_yaml(profile, "made\nby hand"), "again", "."), profile);
  EXPECT_TRUE(to_yaml(profile, "made\nby hand").starts_with("# made\n# by hand\nversion: 1\n"));
  text.replace(text.find("pass_gbps: 4"), 12, "pass_gbps: 0");
  EXPECT_SAYS(refused(text), "0 is not above 0");
}

TEST(MachineProfile, HoldsWhatComesFromACache) {
  const std::string small = small_profile();
  const size_t products = small.find("products:");
  const size_t after = small.find("decode_attention:");
  std::string again = small.substr(products + 10, after - products - 10);
  again.insert(again.find("    source"), "    cached: true\n");
  const std::string caches =
      "caches:\n  - source: a test\n    mib: [1, 8, 16]\n    missed: [0, 0.25, 1]\n";
  std::string text = small.substr(0, after) + again + caches + small.substr(after);
  const MachineProfile profile = parse_machine_profile(text, "tiny.yaml", ".");
  ASSERT_EQ(profile.products.size(), 2u);
  EXPECT_TRUE(profile.products[1].cached);
  ASSERT_EQ(profile.caches.size(), 1u);
  EXPECT_EQ(profile.caches[0].missed[1], 0.25);
  EXPECT_EQ(parse_machine_profile(to_yaml(profile), "again", "."), profile);
  const auto refused_with = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    return refused(other.replace(other.find(from), from.size(), to));
  };
  EXPECT_SAYS(refused_with("[0, 0.25, 1]", "[0, 0.25]"), "has 2 shares for 3 sizes");
  EXPECT_SAYS(refused_with("[0, 0.25, 1]", "[0, 0.25, 2]"), "2 is no share from 0 to 1");
  EXPECT_SAYS(refused_with("[0, 0.25, 1]", "[0, 1, 0.5]"), "0.5 does not ascend after 1");
  EXPECT_SAYS(refused_with("[1, 8, 16]", "[1, 8, 8]"), "8 does not ascend after 8");
}

TEST(MachineProfile, TheNextLargerNumberOfRanksStandsForOneThatWasNotMeasured) {
  std::vector<OverheadCurve> curves(3);
  curves[0].ranks = 4;
  curves[1].ranks = 1;
  curves[2].ranks = 2;
  const auto chosen = [&](size_t ranks) { return for_ranks(curves, ranks)->ranks; };
  EXPECT_EQ(chosen(1), 1u);
  EXPECT_EQ(chosen(2), 2u);
  EXPECT_EQ(chosen(3), 4u);
  EXPECT_EQ(chosen(9), 4u);
  EXPECT_EQ(for_ranks(std::vector<OverheadCurve>{}, 1), nullptr);
}

TEST(MachineProfile, RefusesAnUnknownGpuWithTheKnownOnes) {
  const std::string text = error_of([] { machine("h100-sxn"); });
  EXPECT_SAYS(text, "no profile of GPU \"h100-sxn\" (did you mean \"h100-sxm\"?)");
  EXPECT_SAYS(text, "a100-sxm, cpu, h100-sxm, h200-sxm");
}

TEST(MachineProfile, RefusesWhatIsNoCurve) {
  EXPECT_SAYS(refused(with("[1, 31]", "[31, 1]")), "tiny.yaml:10:18: tokens[1]: 1 does not ascend");
  EXPECT_SAYS(refused(with("[1, 31]", "[1, 1]")), "1 does not ascend after 1");
  EXPECT_SAYS(refused(with("- [3, 4]", "- [3]")), "has 1 times, not 2");
  EXPECT_SAYS(refused(with("      - [3, 4]\n", "")), "has 1 rows, not 2 outputs x 1 inputs");
  EXPECT_SAYS(refused(with("[3, 4]", "[3, 0]")), "0 is not above 0");
  EXPECT_SAYS(refused(with("[3, 4]", "[3, -1]")), "-1 is not above 0");
  EXPECT_SAYS(refused(with("tile_us: 0.5", "tile_us: -0.5")), "-0.5 is not from 0");
  EXPECT_SAYS(refused(with("memory_gbps: 100", "memory_gbps: 0")), "0 is not above 0");
  EXPECT_SAYS(refused(with("format: bf16", "format: fp16")), "\"fp16\" is none of bf16, fp8");
  EXPECT_SAYS(refused(with("gbps: 90", "gpbs: 90")), "did you mean \"gbps\"?");
  EXPECT_SAYS(refused(with("version: 1", "version: 2")), "2 is not read");
  EXPECT_SAYS(refused(with("[1024]\n    microseconds: [5]", "[]\n    microseconds: []")),
              "has no sizes");
}

TEST(MachineProfile, RefusesOneWithoutAKindOfCurve) {
  const std::string attention =
      "prefill_attention:\n  - source: a test\n    tflops: 5\n    half_tokens: 100\n"
      "    most_context: 1024\n";
  EXPECT_SAYS(refused(with(attention, "")), "tiny has no prefill_attention, nor has its base");
  EXPECT_SAYS(refused(with("format: bf16", "format: fp8")),
              "tiny has no products, bf16 from memory first");
}

TEST(MachineProfile, ABaseLiesInTheSameFolderAndHasNone) {
  const std::string profiles = configs() + "/profiles";
  const auto parse = [&](const std::string& base) {
    return error_of([&] {
      parse_machine_profile("version: 1\nname: x\nbase: " + base +
                                "\nrates:\n  memory_gib: 8\n  memory_gbps: 1\n  bf16_tflops: 1\n",
                            "x.yaml", profiles);
    });
  };
  EXPECT_SAYS(parse("h200-sxm"), "a base has no base of its own");
  EXPECT_SAYS(parse("\"../profiles/h100-sxm\""), "is a name in the same folder, not a path");
  EXPECT_SAYS(parse("h300"), "h300.yaml");
}

}  // namespace
}  // namespace weft::planner
