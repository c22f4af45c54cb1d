// What kernels must move and compute, at 33B's shapes.
#include <gtest/gtest.h>

#include "launch/kernel_set.h"
#include "runtime/hf_config.h"

namespace weft::launch {
namespace {

KernelShapes shapes(size_t tp) {
  const planner::ModelSpec spec =
      runtime::read_model(std::string(WEFT_SOURCE_DIR) + "/configs/models/deepseek-coder-33b.yaml");
  return {spec, planner::shard_shapes(spec, tp, 0)};
}

constexpr KernelWork kDecode{false, 128, 2048};
constexpr KernelWork kPrefill{true, 1, 2048};

TEST(KernelCounts, ProductsReadTheirWeightsOnce) {
  const KernelShapes s = shapes(1);
  EXPECT_EQ(product_size(s, KernelOp::qkv).outputs, 9216u);
  const double gate_up = 38400.0 * 7168 * 2;
  EXPECT_EQ(kernel_bytes(s, KernelOp::gate_up, kDecode), gate_up + 128.0 * (7168 + 19200) * 2);
  EXPECT_EQ(kernel_flops(s, KernelOp::gate_up, kDecode), 2 * 128.0 * 38400 * 7168);
  EXPECT_EQ(kernel_flops(s, KernelOp::gate_up, kPrefill), 2 * 2048.0 * 38400 * 7168);
  EXPECT_EQ(kernel_flops(s, KernelOp::head, kPrefill), 2.0 * 32256 * 7168) << "of the last row";
}

TEST(KernelCounts, AttentionReadsTheCacheOnceAndSeesWhatIsVisible) {
  const KernelShapes s = shapes(1);
  const double queries = 2.0 * 56 * 128 * 2;  // in and out
  EXPECT_EQ(kernel_bytes(s, KernelOp::attention, kDecode), 128.0 * 2048 * 4096 + 128 * queries);
  EXPECT_EQ(kernel_flops(s, KernelOp::attention, kDecode), 4.0 * 128 * 2048 * 7168);
  EXPECT_EQ(kernel_bytes(s, KernelOp::attention, kPrefill), 2048.0 * 4096 + 2048 * queries);
  EXPECT_EQ(kernel_flops(s, KernelOp::attention, kPrefill), 4.0 * (2048.0 * 2049 / 2) * 7168);
}

TEST(KernelCounts, ARankOfSeveralHasItsPart) {
  const KernelShapes whole = shapes(1), part = shapes(8);
  EXPECT_EQ(product_size(part, KernelOp::o).inputs, product_size(whole, KernelOp::o).inputs / 8);
  EXPECT_EQ(product_size(part, KernelOp::o).outputs, 7168u);
  EXPECT_EQ(kernel_flops(part, KernelOp::attention, kDecode),
            kernel_flops(whole, KernelOp::attention, kDecode) / 8);
  EXPECT_EQ(kernel_bytes(part, KernelOp::norm, kDecode),
            kernel_bytes(whole, KernelOp::norm, kDecode));
}

TEST(KernelCounts, WhatIsNoProductHasNoOperations) {
  const KernelShapes s = shapes(1);
  for (const KernelOp op : {KernelOp::embedding, KernelOp::norm, KernelOp::rope, KernelOp::swiglu,
                            KernelOp::residual, KernelOp::sampling}) {
    EXPECT_EQ(kernel_flops(s, op, kDecode), 0);
    EXPECT_GT(kernel_bytes(s, op, kDecode), 0);
  }
}

}  // namespace
}  // namespace weft::launch
