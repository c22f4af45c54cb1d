// Curves: what was measured comes back, what lies between lies between, what lies outside says so.
#include "planner/kernel_cost.h"

#include "tests/planner/profiles.h"

namespace weft::planner {
namespace {

TEST(KernelCost, MeasuredProductsComeBack) {
  const MachineProfile h100 = machine("h100-sxm");
  for (const ProductCurve& curve : h100.products)
    for (size_t i = 0; i < curve.microseconds.size(); i += 7) {
      const size_t m = i % curve.tokens.size();
      const size_t k = i / curve.tokens.size() % curve.inputs.size();
      const size_t n = i / curve.tokens.size() / curve.inputs.size();
      const Estimate got =
          product_us(h100, curve.format, curve.tokens[m], curve.outputs[n], curve.inputs[k]);
      EXPECT_NEAR(got.us, curve.microseconds[i], 1e-6 * curve.microseconds[i]);
      EXPECT_FALSE(got.extrapolated);
    }
}

TEST(KernelCost, AProductBetweenTwoShapesCostsAsTheirMean) {
  const MachineProfile h100 = machine("h100-sxm");
  // [m, 5120] x [5120, n]: 6400 outputs lie between 5120 and 7168.
  for (const size_t m : {1, 31, 33, 300}) {
    const double below = product_us(h100, NumberFormat::bf16, m, 5120, 5120).us;
    const double at = product_us(h100, NumberFormat::bf16, m, 6400, 5120).us;
    const double above = product_us(h100, NumberFormat::bf16, m, 7168, 5120).us;
    EXPECT_GT(at, 0.9 * below) << m;
    EXPECT_LT(at, 1.1 * above) << m;
  }
}

TEST(KernelCost, NoProductBeatsTheRoof) {
  for (const std::string gpu : {"h100-sxm", "h200-sxm"}) {
    const MachineProfile profile = machine(gpu);
    for (const size_t tokens : {1, 33, 512, 8000})
      for (const size_t outputs : {300, 5000, 60000}) {
        const Estimate got = product_us(profile, NumberFormat::bf16, tokens, outputs, 5120);
        const double roof =
            product_roof_us(profile.rates, NumberFormat::bf16, static_cast<double>(tokens),
                            static_cast<double>(outputs), 5120);
        EXPECT_GE(got.us, 0.99 * roof) << gpu << " " << tokens << " " << outputs;
      }
  }
}

TEST(KernelCost, MoreMemoryBandwidthHelpsWhereMemoryBinds) {
  const MachineProfile h100 = machine("h100-sxm");
  const MachineProfile h200 = machine("h200-sxm");
  const auto ratio = [&](size_t tokens) {
    return product_us(h100, NumberFormat::bf16, tokens, 10240, 8192).us /
           product_us(h200, NumberFormat::bf16, tokens, 10240, 8192).us;
  };
  EXPECT_NEAR(ratio(1), 4800.0 / 3350, 0.03);
  EXPECT_NEAR(ratio(4096), 1, 1e-9);
}

TEST(KernelCost, OutsideTheCurveGrowsWithTheRoofAndSaysSo) {
  const MachineProfile h100 = machine("h100-sxm");
  const Estimate edge = product_us(h100, NumberFormat::bf16, 16384, 51200, 8192);
  const Estimate beyond = product_us(h100, NumberFormat::bf16, 32768, 51200, 8192);
  EXPECT_FALSE(edge.extrapolated);
  EXPECT_TRUE(beyond.extrapolated);
  EXPECT_NEAR(beyond.us / edge.us, 2, 0.01);
  const Estimate narrow = product_us(h100, NumberFormat::bf16, 1, 128, 1024);
  EXPECT_TRUE(narrow.extrapolated);
  EXPECT_GT(narrow.us, 2.9);  // a kernel's start is not scaled away
  EXPECT_TRUE(product_us(h100, NumberFormat::int4, 1, 5120, 5120).extrapolated);
}

TEST(KernelCost, NarrowWeightsAreReadFaster) {
  const MachineProfile h100 = machine("h100-sxm");
  const auto us = [&](NumberFormat format) { return product_us(h100, format, 1, 16384, 8192).us; };
  EXPECT_LT(us(NumberFormat::fp8), us(NumberFormat::bf16));
  EXPECT_LT(us(NumberFormat::int4), us(NumberFormat::fp8));
}

TEST(KernelCost, AGpuWithoutACurveOfTheFormatIsRefused) {
  MachineProfile bf16_only = machine("h100-sxm");
  bf16_only.products.resize(1);
  EXPECT_SAYS(error_of([&] { product_us(bf16_only, NumberFormat::fp8, 1, 1024, 1024); }),
              "h100-sxm has no fp8 products");
}

// Weights that stay in a cache from step to step, and weights that come from memory.
TEST(KernelCost, WhatACacheMissesComesFromMemory) {
  MachineProfile host = machine("cpu");
  std::erase_if(host.products, [](const ProductCurve& curve) { return curve.cached; });
  const auto us = [&](double missed) {
    return product_us(host, NumberFormat::bf16, 1, 256, 256, 1, missed).us;
  };
  const double memory = us(1);
  EXPECT_EQ(us(0), memory);  // the profile knows of no cache
  ProductCurve cached = host.products.front();
  cached.cached = true;
  for (double& time : cached.microseconds) time /= 4;
  host.products.push_back(cached);
  EXPECT_NEAR(us(0), memory / 4, 1e-6 * memory);
  EXPECT_NEAR(us(0.5), memory * 0.625, 1e-6 * memory);
  EXPECT_EQ(us(1), memory);
  host.caches = {{1, "a test", {4, 8, 16}, {0, 0.5, 1}}};
  constexpr double mib = 1 << 20;
  EXPECT_EQ(missed_share(host, 1 * mib, 1), 0);
  EXPECT_EQ(missed_share(host, 6 * mib, 1), 0.25);
  EXPECT_EQ(missed_share(host, 8 * mib, 2), 0.5);
  EXPECT_EQ(missed_share(host, 100 * mib, 1), 1);
  host.caches.clear();
  EXPECT_EQ(missed_share(host, 1, 1), 1);
}

TEST(KernelCost, DecodeAttentionReadsTheCacheOnce) {
  const MachineProfile h100 = machine("h100-sxm");
  const auto us = [&](size_t batch, double context, NumberFormat kv) {
    return decode_attention_us(h100, kv, kv, batch, context, {32, 8, 128}).us;
  };
  // 32 sequences of 8,192 tokens, 8 heads of 128: 1.07 GB; measured 352.8 us of which 14 start.
  EXPECT_NEAR(us(32, 8192, NumberFormat::bf16), 340, 20);
  EXPECT_NEAR(us(32, 8192, NumberFormat::fp8), 190, 15);
  EXPECT_NEAR(us(64, 8192, NumberFormat::bf16), 2 * us(32, 8192, NumberFormat::bf16), 1e-6);
  EXPECT_TRUE(
      decode_attention_us(h100, NumberFormat::bf16, NumberFormat::bf16, 1, 2e5, {32, 8, 128})
          .extrapolated);
}

TEST(KernelCost, PrefillAttentionGrowsWithWhatPrecedes) {
  const MachineProfile h100 = machine("h100-sxm");
  const double first = prefill_attention_us(h100, 512, 0, {32, 8, 128}).us;
  const double fourth = prefill_attention_us(h100, 512, 1536, {32, 8, 128}).us;
  EXPECT_GT(fourth, 2 * first);
  // 8,192 tokens, 32 heads: measured 912 us.
  EXPECT_NEAR(prefill_attention_us(h100, 8192, 0, {32, 8, 128}).us, 912, 60);
}

TEST(KernelCost, AllReduceTakesTheFasterImplementation) {
  const MachineProfile h100 = machine("h100-sxm");
  EXPECT_NEAR(all_reduce_us(h100, 8, 8192).us, 5.11, 1e-6);          // one-shot
  EXPECT_NEAR(all_reduce_us(h100, 2, 536870912).us, 1686.44, 1e-3);  // ring
  EXPECT_EQ(all_reduce_us(h100, 1, 8192).us, 0);
  const Estimate six = all_reduce_us(h100, 6, 8192);
  EXPECT_EQ(six.us, all_reduce_us(h100, 8, 8192).us);
  EXPECT_TRUE(six.extrapolated);
  EXPECT_FALSE(all_reduce_us(h100, 4, 33).extrapolated);
  EXPECT_TRUE(all_reduce_us(h100, 4, 1e11).extrapolated);
}

TEST(KernelCost, LinksBetweenNodesAreSlowerAndScaleWithTheirRate) {
  const MachineProfile h100 = machine("h100-sxm");
  const NodeLink own;
  const NodeLink slow{12.5, 30};
  for (const double bytes : {33.0, 1e5, 5e7, 1e9}) {
    const double inside = send_recv_us(h100, own, false, bytes).us;
    const double across = send_recv_us(h100, own, true, bytes).us;
    EXPECT_LT(inside, across) << bytes;
    EXPECT_LT(across, send_recv_us(h100, slow, true, bytes).us) << bytes;
  }
  EXPECT_GE(send_recv_us(h100, slow, true, 1).us, 30);
  EXPECT_GT(all_reduce_across_us(h100, own, 16, 2, 1e6).us, all_reduce_us(h100, 8, 1e6).us);
}

TEST(KernelCost, BestRatesAreTheCurvesBest) {
  const BestRates best = best_rates(machine("h100-sxm"), NumberFormat::bf16);
  EXPECT_GT(best.product_tflops, 750);
  EXPECT_LT(best.product_tflops, 989);
  EXPECT_NEAR(best_all_reduce_gbps(machine("h100-sxm"), 2), 536870912 / 1686.44e-6 * 1e-9, 20);
  EXPECT_EQ(best_all_reduce_gbps(machine("h100-sxm"), 1), 0);
}

}  // namespace
}  // namespace weft::planner
