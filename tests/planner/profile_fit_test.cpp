// Curves fitted to times that were made from known ones come back; times that no curve explains
// don't make one with negative parts.
#include "planner/profile_fit.h"

#include "planner/step_cost.h"
#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

TEST(FitTwo, FindsBothCoefficients) {
  std::vector<FitPoint> points;
  for (const double x : {1.0, 31.0, 512.0, 8000.0}) points.push_back({{1, x}, 3 + 0.25 * x});
  const auto [a, b] = fit_two(points);
  EXPECT_NEAR(a, 3, 1e-9);
  EXPECT_NEAR(b, 0.25, 1e-12);
}

TEST(FitTwo, LeavesOutACoefficientThatWouldBeNegative) {
  std::vector<FitPoint> falls = {{{1, 1}, 10}, {{1, 2}, 9}, {{1, 3}, 8}};
  const auto [a, b] = fit_two(falls);
  EXPECT_EQ(b, 0);
  EXPECT_GT(a, 8);
  EXPECT_LT(a, 10);
  const std::vector<FitPoint> from_below = {{{1, 1}, 0.5}, {{1, 2}, 2.5}, {{1, 3}, 4.5}};
  const auto [c, d] = fit_two(from_below);
  EXPECT_EQ(c, 0);
  EXPECT_GT(d, 0);
}

// A relative error of a short time counts as much as that of a long one.
TEST(FitTwo, WeighsByWhatIsGiven) {
  const std::vector<FitPoint> points = {{{1, 0}, 1}, {{1, 0}, 3, 300}};
  EXPECT_NEAR(fit_two(points)[0], 1, 1e-4);
}

TEST(FitTwo, RefusesWhatIsNoTime) {
  EXPECT_SAYS(error_of([] { fit_two({}); }), "no times");
  const std::vector<FitPoint> bad = {{{1, 1}, -1}};
  EXPECT_SAYS(error_of([&] { fit_two(bad); }), "-1 us can't be fitted");
}

TEST(FitCache, NoiseIsNoMissAndSharesAscend) {
  const std::vector<CacheTime> times = {{1, 3.1}, {2, 3},    {4, 3.2},   {8, 9},
                                        {16, 8},  {32, 15.}, {64, 14.9}, {128, 15}};
  const CacheCurve curve = fit_cache(times);
  EXPECT_EQ(curve.mib, (std::vector<double>{1, 2, 4, 8, 16, 32, 64, 128}));
  EXPECT_EQ(curve.missed, (std::vector<double>{0, 0, 0, 0.5, 0.5, 1, 1, 1}));
  EXPECT_EQ(cached_mib(curve), 4);
  EXPECT_SAYS(error_of([] { fit_cache({}); }), "no times");
}

TEST(FitDecodeAttention, GivesTheCurveBack) {
  MachineProfile machine;
  machine.rates = machine.curve_rates = {1, 10, 1, 0, 0};
  DecodeAttentionCurve curve;
  curve.gbps = 7;
  curve.tflops = 0.01;
  curve.tile_us = 0.75;
  curve.most_context = 4096;
  machine.decode_attention = {curve};
  std::vector<DecodeAttentionTime> times;
  for (const HeadCounts& heads : {HeadCounts{8, 8, 64}, HeadCounts{32, 8, 128}})
    for (const double context : {65.0, 1000.0, 4096.0})
      times.push_back(
          {3, context, heads,
           decode_attention_us(machine, NumberFormat::bf16, NumberFormat::bf16, 3, context, heads)
               .us});
  const DecodeAttentionCurve found = fit_decode_attention(times);
  EXPECT_NEAR(found.gbps, 7, 1e-6);
  EXPECT_NEAR(found.tile_us, 0.75, 1e-6);
  EXPECT_NEAR(found.tflops, 0.01, 1e-6);
  EXPECT_EQ(found.most_context, 4096u);
}

TEST(FitPrefillAttention, GivesTheCurveBack) {
  MachineProfile machine;
  machine.rates = machine.curve_rates = {1, 10, 1, 0, 0};
  machine.prefill_attention = {{1, "a test", 0.02, 150, 2048}};
  std::vector<PrefillAttentionTime> times;
  for (const double tokens : {33.0, 512.0})
    for (const double prior : {0.0, 1000.0})
      times.push_back(
          {tokens, prior, {8, 8, 64}, prefill_attention_us(machine, tokens, prior, {8, 8, 64}).us});
  const PrefillAttentionCurve found = fit_prefill_attention(times);
  EXPECT_NEAR(found.tflops, 0.02, 1e-9);
  EXPECT_NEAR(found.half_tokens, 150, 1e-4);
  EXPECT_EQ(found.most_context, 1512u);
}

TEST(FitLayerRest, SplitsStartsFromPasses) {
  std::vector<LayerRest> rests;
  for (const double tokens : {1.0, 64.0, 256.0}) {
    const double rest = 12 + layer_pass_bytes(tokens, 256) / 5 * 1e-3;
    rests.push_back({tokens, 256, rest, rest + 40 * tokens});
  }
  OverheadCurve curve;
  fit_layer_rest(rests, curve);
  EXPECT_NEAR(curve.layer_us, 12, 0.2);
  EXPECT_NEAR(curve.pass_gbps, 5, 0.02);
}

TEST(RatesOf, TakeMemoryFromTheLargestMatrices) {
  ProductCurve curve;
  curve.tokens = {1, 64};
  curve.outputs = {64, 1024};
  curve.inputs = {1024};
  curve.microseconds = {1, 100, 200, 2000};  // 131, …; 10.5 GB/s; 67 GFLOP/s at most
  const GpuRates rates = rates_of(curve, 4);
  EXPECT_EQ(rates.memory_gib, 4);
  EXPECT_NEAR(rates.memory_gbps, 2.0 * 1024 * 1024 / 200 * 1e-3, 1e-9);
  EXPECT_NEAR(rates.bf16_tflops, 0.13107, 1e-4);
}

TEST(RoundNumbers, KeepsFourDigitsAndIsReadBack) {
  MachineProfile profile = machine("h100-sxm");
  profile.aliases.clear();
  profile.products.front().microseconds.front() = 1.23456;
  profile.send_recv_inside.front().microseconds.back() = 123456.7;
  round_numbers(profile);
  EXPECT_EQ(profile.products.front().microseconds.front(), 1.235);
  EXPECT_EQ(profile.send_recv_inside.front().microseconds.back(), 123500);
  EXPECT_EQ(parse_machine_profile(to_yaml(profile), "again", "."), profile);
}

}  // namespace
}  // namespace weft::planner
