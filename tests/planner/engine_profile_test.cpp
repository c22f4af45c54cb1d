// Engine profiles on disk, and which habits a version has.
#include "planner/engine_profile.h"

#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

std::string with(const std::string& part, const std::string& instead) {
  std::string text = to_yaml(engine("vllm"));
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), instead);
}

std::string refused(const std::string& text) {
  return error_of([&] { parse_engine_profile(text, "e.yaml"); });
}

TEST(EngineProfile, ShippedOnesAreReadBackAsTheyWereWritten) {
  for (const std::string name : {"weft", "vllm", "trtllm", "sglang"}) {
    const EngineProfile profile = engine(name);
    EXPECT_EQ(profile.name, name);
    EXPECT_NE(profile.source, "");
    EXPECT_EQ(parse_engine_profile(to_yaml(profile), "again"), profile);
  }
}

TEST(EngineProfile, FactorsOfShippedOnesArePhysical) {
  for (const std::string name : {"weft", "vllm", "trtllm", "sglang"}) {
    const EngineConstants& constants = engine(name).constants;
    EXPECT_LE(constants.experts_idle, 1) << name;
    EXPECT_LE(constants.experts_bandwidth, 1) << name;
    EXPECT_LE(constants.experts_compute, 1) << name;
    EXPECT_GE(constants.products, 0.8) << name;  // else weights come faster than memory gives them
    EXPECT_GE(constants.attention, 0.9) << name;
    for (const double factor :
         {constants.products, constants.attention, constants.prefill_products})
      EXPECT_LT(factor, 2) << name;
  }
}

TEST(EngineProfile, HabitsAreThoseOfTheLastReleaseNotNewer) {
  const EngineProfile vllm = engine("vllm");
  EXPECT_EQ(&habits_of(vllm, ""), &vllm.habits);
  EXPECT_EQ(&habits_of(vllm, "0.9.2"), &vllm.habits);  // 9 < 12, whatever the digits spell
  EXPECT_EQ(&habits_of(vllm, "0.12.0"), &vllm.since.at(0).second);
  EXPECT_EQ(&habits_of(vllm, "v0.12.1rc3"), &vllm.since.at(0).second);
  EXPECT_EQ(&habits_of(vllm, "1.0"), &vllm.since.at(0).second);
  EXPECT_EQ(habits_of(vllm, "0.12.0").memory_fraction, vllm.habits.memory_fraction);  // inherited
}

TEST(EngineProfile, KvFollowsTheWeightsWhereNobodyAsked) {
  EXPECT_EQ(default_kv(engine("vllm").habits, NumberFormat::fp8), NumberFormat::bf16);
  EXPECT_EQ(default_kv(engine("trtllm").habits, NumberFormat::fp8), NumberFormat::fp8);
  EXPECT_EQ(default_kv(engine("trtllm").habits, NumberFormat::bf16), NumberFormat::bf16);
}

TEST(EngineProfile, RefusesWhatCannotBe) {
  EXPECT_SAYS(refused(with("memory_fraction: 0.9", "memory_fraction: 1.5")),
              "memory_fraction: 1.5 is not from 0.01 to 1");
  EXPECT_SAYS(refused(with("batch_limit: 256", "batch_limit: 0")), "\"0\" is not a whole number");
  EXPECT_SAYS(refused(with("step_us: ", "step_us: -")), "is not from 0 to 1000000");
  EXPECT_SAYS(refused(with("  products: ", "  product: ")), "did you mean \"products\"?");
  EXPECT_SAYS(refused(with("arrivals: steady", "arrivals: random")), "none of bursts, steady");
  EXPECT_SAYS(refused(to_yaml(engine("vllm")) + "  - release: \"0.11.0\"\n"),
              "0.11.0 does not follow 0.12.0");
}

TEST(EngineProfile, RefusesAnUnknownEngineWithTheKnownOnes) {
  EXPECT_SAYS(error_of([] { engine("vlm"); }),
              "no profile of engine \"vlm\" (did you mean \"vllm\"?)");
}

}  // namespace
}  // namespace weft::planner
