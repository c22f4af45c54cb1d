// Times of weft's CPU kernels on this machine as the curves of a machine profile: products by
// shape, attention, sampling.
#pragma once

#include "launch/calibrate_rig.h"
#include "planner/profile_fit.h"

namespace weft::launch {

// Collectives of the rig's ranks; every rank gets the same. Sources are the caller's to write.

// bf16, invariant; a mean over a layer's kinds of product. Matrices of a shape take turns, as a
// model's layers do: as many as fill half of the cache, and far more than it holds.
struct ProductTimes {
  planner::CacheCurve cache;
  planner::ProductCurve from_memory;
  planner::ProductCurve from_cache;
};
ProductTimes time_products(const Rig& rig);
planner::DecodeAttentionCurve time_decode_attention(const Rig& rig);
planner::PrefillAttentionCurve time_prefill_attention(const Rig& rig);
// What a rank waits at a sum for the slowest of the rig, as a share of the products before it; a
// sum itself takes `sum_us`.
double time_wait_share(const Rig& rig, double sum_us);
// sample_us and sample_gbps of `curve`.
void time_sampling(const Rig& rig, planner::OverheadCurve& curve);

}  // namespace weft::launch
