#include "planner/profile_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/step_cost.h"
#include "runtime/base/error.h"

namespace weft::planner {
namespace {

constexpr double kMostGbps = 1e6;    // what a fit says that finds no cost by the byte
constexpr double kMostTflops = 1e6;  // nor by the operation
constexpr double kNoise = 0.05;      // a share of misses that is as good as none, or as all

double per_byte_to_gbps(double us_a_byte) {
  return us_a_byte > 1e-3 / kMostGbps ? 1e-3 / us_a_byte : kMostGbps;
}

double kv_bytes(const DecodeAttentionTime& time) {
  return static_cast<double>(time.sequences * time.heads.kv * time.heads.dim) * time.context * 2 *
         kv_bytes_each(NumberFormat::bf16);
}

double tiles(const DecodeAttentionTime& time) {
  return static_cast<double>(time.sequences * time.heads.kv);
}

// One coefficient alone, the other 0.
double fit_one(std::span<const FitPoint> points, size_t which) {
  double square = 0, product = 0;
  for (const FitPoint& point : points) {
    const double f = point.f[which] / point.scale_us;
    square += f * f;
    product += f * point.us / point.scale_us;
  }
  return square > 0 ? std::max(0.0, product / square) : 0;
}

}  // namespace

std::array<double, 2> fit_two(std::span<const FitPoint> given) {
  std::vector<FitPoint> points(given.begin(), given.end());
  if (points.empty()) throw run_error("a curve can't be fitted to no times");
  double a = 0, b = 0, c = 0, u = 0, v = 0;
  for (FitPoint& point : points) {
    if (point.scale_us == 0) point.scale_us = point.us;
    if (!(point.scale_us > 0) || !std::isfinite(point.us))
      throw run_error("a time of {} us can't be fitted", point.us);
    const double f = point.f[0] / point.scale_us;
    const double g = point.f[1] / point.scale_us;
    const double t = point.us / point.scale_us;
    a += f * f;
    b += f * g;
    c += g * g;
    u += f * t;
    v += g * t;
  }
  const double determinant = a * c - b * b;
  if (determinant > 1e-12 * a * c) {
    const std::array<double, 2> both = {(c * u - b * v) / determinant,
                                        (a * v - b * u) / determinant};
    if (both[0] >= 0 && both[1] >= 0) return both;
    if (both[0] < 0) return {0, fit_one(points, 1)};
  }
  return {fit_one(points, 0), 0};
}

DecodeAttentionCurve fit_decode_attention(std::span<const DecodeAttentionTime> times) {
  std::vector<FitPoint> reads;
  DecodeAttentionCurve curve;
  for (const DecodeAttentionTime& time : times) {
    curve.most_context = std::max(curve.most_context, static_cast<size_t>(time.context));
    if (time.heads.query == time.heads.kv)
      reads.push_back({{tiles(time), kv_bytes(time)}, time.us});
  }
  const auto [tile_us, us_a_byte] = fit_two(reads);
  curve.tile_us = tile_us;
  curve.gbps = per_byte_to_gbps(us_a_byte);
  std::vector<FitPoint> arithmetic;
  for (const DecodeAttentionTime& time : times) {
    if (time.heads.query == time.heads.kv) continue;
    const double flops =
        4 * static_cast<double>(time.sequences * time.heads.query * time.heads.dim) * time.context;
    const double left = time.us - tiles(time) * tile_us;
    if (left > 0) arithmetic.push_back({{flops, 0}, left, time.us});
  }
  if (arithmetic.empty()) return curve;
  const double us_a_flop = fit_two(arithmetic)[0];
  if (us_a_flop > 1e-6 / kMostTflops) curve.tflops = 1e-6 / us_a_flop;
  return curve;
}

PrefillAttentionCurve fit_prefill_attention(std::span<const PrefillAttentionTime> times) {
  std::vector<FitPoint> points;
  PrefillAttentionCurve curve;
  for (const PrefillAttentionTime& time : times) {
    const double context = time.prior + time.tokens;
    const double flops = 4 * time.tokens * (time.prior + time.tokens / 2) *
                         static_cast<double>(time.heads.query * time.heads.dim);
    points.push_back({{flops, flops / context}, time.us});
    curve.most_context = std::max(curve.most_context, static_cast<size_t>(context));
  }
  const auto [us_a_flop, us_by_context] = fit_two(points);
  curve.tflops = us_a_flop > 1e-6 / kMostTflops ? 1e-6 / us_a_flop : kMostTflops;
  curve.half_tokens = us_by_context * curve.tflops * 1e6;
  return curve;
}

void fit_layer_rest(std::span<const LayerRest> rests, OverheadCurve& curve) {
  const auto fit = [&](bool one_row, double known_us, auto feature) {
    std::vector<FitPoint> points;
    for (const LayerRest& rest : rests)
      if ((rest.tokens == 1) == one_row)
        points.push_back({{feature(rest), 0}, rest.rest_us - known_us, rest.layer_us});
    return fit_two(points)[0];
  };
  const auto bytes = [](const LayerRest& rest) {
    return layer_pass_bytes(rest.tokens, rest.hidden);
  };
  const double us_a_byte = fit(false, 0, bytes);
  curve.layer_us = fit(true, us_a_byte * layer_pass_bytes(1, rests.front().hidden),
                       [](const LayerRest&) { return 1.0; });
  curve.pass_gbps = per_byte_to_gbps(fit(false, curve.layer_us, bytes));
}

void fit_sampling(std::span<const SampleTime> times, OverheadCurve& curve) {
  std::vector<FitPoint> points;
  for (const SampleTime& time : times) points.push_back({{1, time.vocab * 4}, time.us});
  const auto [sample_us, us_a_byte] = fit_two(points);
  curve.sample_us = sample_us;
  curve.sample_gbps = per_byte_to_gbps(us_a_byte);
}

CacheCurve fit_cache(std::span<const CacheTime> times) {
  if (times.empty()) throw run_error("a cache can't be fitted to no times");
  double least = times.front().us;
  for (const CacheTime& time : times) least = std::min(least, time.us);
  const double most = times.back().us;
  CacheCurve curve;
  double share = 0;
  for (const CacheTime& time : times) {
    const double found = most > least ? (time.us - least) / (most - least) : 0;
    share = std::max(share, std::clamp(found, 0.0, 1.0));
    curve.mib.push_back(time.mib);
    curve.missed.push_back(share < kNoise ? 0 : share > 1 - kNoise ? 1 : share);
  }
  return curve;
}

double cached_mib(const CacheCurve& curve) {
  double mib = curve.mib.front();
  for (size_t i = 0; i < curve.mib.size() && curve.missed[i] == 0; ++i) mib = curve.mib[i];
  return mib;
}

GpuRates rates_of(const ProductCurve& curve, double memory_gib) {
  GpuRates rates;
  rates.memory_gib = memory_gib;
  const size_t n = curve.tokens.size();
  for (size_t i = 0; i < curve.microseconds.size(); ++i) {
    const auto tokens = static_cast<double>(curve.tokens[i % n]);
    const double weights = static_cast<double>(curve.inputs[i / n % curve.inputs.size()]) *
                           static_cast<double>(curve.outputs[i / n / curve.inputs.size()]);
    const double us = curve.microseconds[i];
    rates.bf16_tflops = std::max(rates.bf16_tflops, 2 * tokens * weights / us * 1e-6);
    // Of the largest matrices alone: smaller ones may come from a cache.
    if (i + n >= curve.microseconds.size())
      rates.memory_gbps = std::max(rates.memory_gbps, 2 * weights / us * 1e-3);
  }
  return rates;
}

void round_numbers(MachineProfile& profile) {
  const auto round = [](double& value) { value = std::stod(fmt::format("{:.4g}", value)); };
  const auto round_all = [&](auto&... values) { (round(values), ...); };
  round_all(profile.rates.memory_gib, profile.rates.memory_gbps, profile.rates.bf16_tflops);
  profile.curve_rates = profile.rates;
  for (ProductCurve& curve : profile.products)
    for (double& us : curve.microseconds) round(us);
  for (CacheCurve& curve : profile.caches)
    for (double& share : curve.missed) round(share);
  for (DecodeAttentionCurve& c : profile.decode_attention) round_all(c.gbps, c.tflops, c.tile_us);
  for (PrefillAttentionCurve& c : profile.prefill_attention) round_all(c.tflops, c.half_tokens);
  for (AllReduceCurve& reduce : profile.all_reduce)
    for (double& us : reduce.curve.microseconds) round(us);
  for (auto* curves : {&profile.send_recv_inside, &profile.send_recv_across})
    for (MessageCurve& curve : *curves)
      for (double& us : curve.microseconds) round(us);
  for (OverheadCurve& c : profile.overheads)
    round_all(c.step_us, c.layer_us, c.pass_gbps, c.sample_us, c.sample_gbps, c.wait_share);
}

}  // namespace weft::planner
