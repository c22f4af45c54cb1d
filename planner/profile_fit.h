// From times that were measured to the curves that a machine profile holds, by least squares of
// relative errors. Pure: what `weft bench calibrate` measured goes in.
#pragma once

#include <array>
#include <span>

#include "planner/kernel_cost.h"

namespace weft::planner {

// us ≈ c[0] f[0] + c[1] f[1]; `scale_us` is what errors are measured against (0: us).
struct FitPoint {
  std::array<double, 2> f = {0, 0};
  double us = 0;
  double scale_us = 0;
};
// Coefficients that are not negative; one that would be is 0, and the other fitted alone. Throws
// Error for no points, and for times or scales that are not above 0 where they must be.
std::array<double, 2> fit_two(std::span<const FitPoint> points);

// n sequences of `context` cached tokens, one new token each.
struct DecodeAttentionTime {
  size_t sequences = 1;
  double context = 1;
  HeadCounts heads;
  double us = 0;
};
// Of keys and values in bf16. Points of as many query as KV heads give gbps and tile_us, those of
// more query heads tflops (none: never bound by arithmetic).
DecodeAttentionCurve fit_decode_attention(std::span<const DecodeAttentionTime> times);

struct PrefillAttentionTime {
  double tokens = 1;
  double prior = 0;
  HeadCounts heads;
  double us = 0;
};
PrefillAttentionCurve fit_prefill_attention(std::span<const PrefillAttentionTime> times);

// What a layer of `hidden` takes beside its products, attention and sums, of `layer_us` in all.
struct LayerRest {
  double tokens = 1;
  double hidden = 1;
  double rest_us = 0;  // may be below 0, where curves are interpolated too high
  double layer_us = 0;
};
// layer_us and pass_gbps of the curve: the one by layers of one row, the other by those of more.
void fit_layer_rest(std::span<const LayerRest> rests, OverheadCurve& curve);

struct SampleTime {
  double vocab = 1;
  double us = 0;
};
// sample_us and sample_gbps of the curve.
void fit_sampling(std::span<const SampleTime> times, OverheadCurve& curve);

// Of one small product whose weights are those of a model of so many MiB, read round and round.
struct CacheTime {
  double mib = 1;
  double us = 0;
};
// Sizes ascend; the largest is taken to come from memory as a whole, the quickest from a cache.
CacheCurve fit_cache(std::span<const CacheTime> times);
// The largest size of which all stays in the cache, at least the smallest measured.
double cached_mib(const CacheCurve& curve);

// Rates of a machine whose products are all that is known: the best that they show.
GpuRates rates_of(const ProductCurve& curve, double memory_gib);

// Every time and rate to four digits: more than a clock repeats.
void round_numbers(MachineProfile& profile);

}  // namespace weft::planner
