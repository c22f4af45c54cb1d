// Interpolation of measured curves. Times lie on straight lines in log-log where a kernel is bound
// by one resource; where two bounds meet the interpolation errs by a few per cent at most.
#include "planner/kernel_cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/error.h"

namespace weft::planner {
namespace {

// A kernel that does nothing: part of every measured time, and the same on any GPU.
constexpr double kKernelFloorUs = 3.0;

constexpr double kMoreOutputs = 4;

// Where a size lies on an axis: between point `below` and the next, `share` of the way in log.
struct Position {
  size_t below = 0;
  double share = 0;
  double clamped = 0;  // the size, moved onto the axis
  bool outside = false;
};

Position find(const std::vector<size_t>& axis, double size) {
  const double first = static_cast<double>(axis.front());
  const double last = static_cast<double>(axis.back());
  Position at;
  at.clamped = std::clamp(size, first, last);
  at.outside = size != at.clamped;
  if (axis.size() == 1) return at;
  const auto above = std::upper_bound(axis.begin(), axis.end(), at.clamped, [](double s, size_t a) {
    return s < static_cast<double>(a);
  });
  const auto index = static_cast<size_t>(above - axis.begin());
  at.below = std::clamp<size_t>(index, 1, axis.size() - 1) - 1;
  const double low = std::log(static_cast<double>(axis[at.below]));
  const double high = std::log(static_cast<double>(axis[at.below + 1]));
  at.share = (std::log(at.clamped) - low) / (high - low);
  return at;
}

// Mean of log f over the corners of the cell, weighted by position.
template <class F>
double blend(const Position& at, F&& f) {
  double sum = 0;
  if (at.share < 1) sum += (1 - at.share) * f(at.below);
  if (at.share > 0) sum += at.share * f(at.below + 1);
  return sum;
}

// Null where the profile has none that came from a cache.
const ProductCurve* find_curve(const MachineProfile& machine, NumberFormat format, size_t ranks,
                               bool cached) {
  const bool narrow = format == NumberFormat::fp8 || format == NumberFormat::int8;
  const NumberFormat measured = narrow ? NumberFormat::fp8 : NumberFormat::bf16;
  return for_ranks(machine.products, ranks, [&](const auto& curve) {
    return curve.format == measured && curve.cached == cached;
  });
}

const ProductCurve& curve_of(const MachineProfile& machine, NumberFormat format, size_t ranks) {
  const ProductCurve* best = find_curve(machine, format, ranks, false);
  if (best != nullptr) return *best;
  throw input_error("{} has no {} products: its profile has no such curve", machine.name,
                    format_name(format));
}

// log of time over roof, so that the waves of tiles are interpolated and not the sizes themselves.
double log_efficiency(const MachineProfile& machine, const ProductCurve& curve, size_t n, size_t k,
                      size_t m) {
  const size_t index = (n * curve.inputs.size() + k) * curve.tokens.size() + m;
  const double roof =
      product_roof_us(machine.curve_rates, curve.format, static_cast<double>(curve.tokens[m]),
                      static_cast<double>(curve.outputs[n]), static_cast<double>(curve.inputs[k]));
  return std::log(curve.microseconds[index] / roof);
}

double message_us(const MessageCurve& curve, double bytes, bool& outside) {
  const Position at = find(curve.bytes, std::max(bytes, 1.0));
  const double us = std::exp(blend(at, [&](size_t i) { return std::log(curve.microseconds[i]); }));
  const bool beyond = bytes > static_cast<double>(curve.bytes.back());
  outside = beyond;  // a smaller message takes as long as the smallest
  return beyond ? us * bytes / at.clamped : us;
}

// What a link curve of another GPU, or of other links, becomes on these: its start stays, its bytes
// scale.
Estimate on_this_link(const MachineProfile& machine, const MessageCurve& curve, double us,
                      bool outside) {
  const double from = machine.curve_rates.nvlink_gbps;
  const double to = machine.rates.nvlink_gbps;
  if (from <= 0 || to <= 0 || from == to) return {us, outside};
  const double start = std::min(us, curve.microseconds.front());
  return {start + (us - start) * from / to, true};
}

size_t nearest_ranks(const MachineProfile& machine, size_t ranks) {
  size_t best = 0;
  for (const AllReduceCurve& reduce : machine.all_reduce) {
    const bool closer = best < ranks ? reduce.ranks > best : reduce.ranks < best;
    if (closer && (reduce.ranks >= ranks || best < ranks)) best = reduce.ranks;
  }
  if (best == 0)
    throw input_error(
        "{} has no all-reduce curve: tensor parallelism over {} ranks can't be priced",
        machine.name, ranks);
  return best;
}

Estimate on_curve(const MachineProfile& machine, const ProductCurve& curve, NumberFormat format,
                  size_t tokens, size_t outputs, size_t inputs) {
  const double size[] = {static_cast<double>(tokens), static_cast<double>(outputs),
                         static_cast<double>(inputs)};
  const Position m = find(curve.tokens, size[0]);
  const Position n = find(curve.outputs, size[1]);
  const Position k = find(curve.inputs, size[2]);
  const double efficiency = blend(n, [&](size_t i) {
    return blend(k, [&](size_t j) {
      return blend(m, [&](size_t l) { return log_efficiency(machine, curve, i, j, l); });
    });
  });
  const double roof_there =
      product_roof_us(machine.curve_rates, curve.format, m.clamped, n.clamped, k.clamped);
  const double us = std::exp(efficiency) * roof_there;
  const double floor = std::min(us, kKernelFloorUs);
  const double roof_here = product_roof_us(machine.rates, format, size[0], size[1], size[2]);
  // More outputs than measured are more of the same tiles, as in a head.
  const bool wide = size[1] > n.clamped && size[1] <= kMoreOutputs * n.clamped;
  const bool outside = m.outside || (n.outside && !wide) || k.outside || format != curve.format;
  return {floor + (us - floor) * roof_here / roof_there, outside};
}

}  // namespace

double product_roof_us(const GpuRates& rates, NumberFormat format, double tokens, double outputs,
                       double inputs) {
  const double activation_bytes =
      format == NumberFormat::fp8 || format == NumberFormat::int8 ? 1 : 2;
  const double flops = 2 * tokens * outputs * inputs;
  const double bytes = outputs * inputs * element_bytes(format) +
                       tokens * inputs * activation_bytes + tokens * outputs * 2;
  const double tflops =
      activation_bytes == 1 && rates.fp8_tflops > 0 ? rates.fp8_tflops : rates.bf16_tflops;
  return std::max(flops / tflops * 1e-6, bytes / rates.memory_gbps * 1e-3);
}

Estimate product_us(const MachineProfile& machine, NumberFormat format, size_t tokens,
                    size_t outputs, size_t inputs, size_t ranks, double missed) {
  if (tokens == 0 || outputs == 0 || inputs == 0) return {};
  const Estimate memory =
      on_curve(machine, curve_of(machine, format, ranks), format, tokens, outputs, inputs);
  const ProductCurve* cached = missed < 1 ? find_curve(machine, format, ranks, true) : nullptr;
  if (cached == nullptr) return memory;
  Estimate best = on_curve(machine, *cached, format, tokens, outputs, inputs);
  best.us = std::min(best.us, memory.us);
  return best * (1 - missed) + memory * missed;
}

double missed_share(const MachineProfile& machine, double step_bytes, size_t ranks) {
  const CacheCurve* curve = for_ranks(machine.caches, ranks);
  if (curve == nullptr) return 1;
  const double mib = step_bytes / (size_t{1} << 20);
  const auto above = std::upper_bound(curve->mib.begin(), curve->mib.end(), mib);
  if (above == curve->mib.begin()) return curve->missed.front();
  if (above == curve->mib.end()) return curve->missed.back();
  const auto i = static_cast<size_t>(above - curve->mib.begin());
  const double share = (mib - curve->mib[i - 1]) / (curve->mib[i] - curve->mib[i - 1]);
  return curve->missed[i - 1] + share * (curve->missed[i] - curve->missed[i - 1]);
}

Estimate decode_attention_us(const MachineProfile& machine, NumberFormat key, NumberFormat value,
                             size_t n_sequences, double context, const HeadCounts& heads,
                             size_t ranks) {
  const bool narrow = element_bytes(key) + element_bytes(value) < 4;
  const DecodeAttentionCurve* curve =
      for_ranks(machine.decode_attention, ranks,
                [&](const auto& other) { return (other.kv == NumberFormat::fp8) == narrow; });
  if (curve == nullptr) curve = for_ranks(machine.decode_attention, ranks);
  const double tiles = static_cast<double>(n_sequences * heads.kv);
  const double numbers = context * static_cast<double>(heads.dim);  // of a head's keys
  const double bytes = tiles * numbers * (kv_bytes_each(key) + kv_bytes_each(value));
  const double gbps = curve->gbps * machine.rates.memory_gbps / machine.curve_rates.memory_gbps;
  double us = bytes / gbps * 1e-3;
  if (curve->tflops > 0) {
    const double flops = 4 * static_cast<double>(n_sequences * heads.query) * numbers;
    us = std::max(us, flops / curve->tflops * 1e-6);
  }
  const bool outside =
      context > static_cast<double>(curve->most_context) || key != value || (key != curve->kv);
  return {us + tiles * curve->tile_us, outside};
}

Estimate prefill_attention_us(const MachineProfile& machine, double tokens, double prior,
                              const HeadCounts& heads, size_t ranks) {
  const PrefillAttentionCurve& curve = *for_ranks(machine.prefill_attention, ranks);
  const double context = prior + tokens;
  const double flops = 4 * tokens * (prior + tokens / 2) * static_cast<double>(heads.query) *
                       static_cast<double>(heads.dim);
  const double tflops = curve.tflops * machine.rates.bf16_tflops / machine.curve_rates.bf16_tflops;
  const double slow = 1 + curve.half_tokens / std::max(context, 1.0);
  return {flops / tflops * 1e-6 * slow, context > static_cast<double>(curve.most_context)};
}

Estimate all_reduce_us(const MachineProfile& machine, size_t ranks, double bytes) {
  if (ranks <= 1) return {};
  const size_t measured = nearest_ranks(machine, ranks);
  Estimate best;
  for (const AllReduceCurve& reduce : machine.all_reduce) {
    if (reduce.ranks != measured) continue;
    bool outside = false;
    const double measured_us = message_us(reduce.curve, bytes, outside);
    const Estimate here =
        on_this_link(machine, reduce.curve, measured_us, outside || measured != ranks);
    if (best.us == 0 || here.us < best.us) best = here;
  }
  return best;
}

Estimate all_reduce_across_us(const MachineProfile& machine, const NodeLink& link, size_t ranks,
                              size_t n_nodes, double bytes) {
  const size_t inside = (ranks + n_nodes - 1) / n_nodes;
  const double nodes = static_cast<double>(n_nodes);
  const double slice = bytes / static_cast<double>(inside) / nodes;
  Estimate steps = send_recv_us(machine, link, true, slice) * (2 * (nodes - 1));
  steps += all_reduce_us(machine, inside, bytes);
  return {steps.us, true};
}

Estimate send_recv_us(const MachineProfile& machine, const NodeLink& link, bool across_nodes,
                      double bytes) {
  bool outside = false;
  const std::vector<MessageCurve>& curves =
      across_nodes ? machine.send_recv_across : machine.send_recv_inside;
  if (curves.empty())
    throw input_error(
        "{} has no curve of messages {}: stages on several ranks can't be priced; calibrate it "
        "under "
        "mpirun with {}",
        machine.name, across_nodes ? "between nodes" : "inside a node",
        across_nodes ? "ranks on two nodes" : "two ranks or more");
  const MessageCurve& curve = curves.front();
  if (!across_nodes)
    return on_this_link(machine, curve, message_us(curve, bytes, outside), outside);
  const double us = message_us(curve, bytes, outside);
  if (link.gbps <= 0) return {us, outside};
  // The curve's own card: bytes over time at its largest message.
  const double start = curve.microseconds.front();
  const double card_gbps = static_cast<double>(curve.bytes.back()) /
                           std::max(curve.microseconds.back() - start, 1e-3) * 1e-3;
  const double stretched = (us - std::min(us, start)) * std::max(1.0, card_gbps / link.gbps);
  return {std::max(start, link.latency_us) + stretched, outside || card_gbps > link.gbps};
}

BestRates best_rates(const MachineProfile& machine, NumberFormat format) {
  BestRates best;
  const ProductCurve& curve = curve_of(machine, format, 1);
  for (size_t i = 0; i < curve.microseconds.size(); ++i) {
    const size_t m = i % curve.tokens.size();
    const size_t k = i / curve.tokens.size() % curve.inputs.size();
    const size_t n = i / curve.tokens.size() / curve.inputs.size();
    const double flops = 2.0 * static_cast<double>(curve.tokens[m]) *
                         static_cast<double>(curve.outputs[n]) *
                         static_cast<double>(curve.inputs[k]);
    best.product_tflops = std::max(best.product_tflops, flops / curve.microseconds[i] * 1e-6);
  }
  best.product_tflops *= machine.rates.bf16_tflops / machine.curve_rates.bf16_tflops;
  best.prefill_attention_tflops = machine.prefill_attention.front().tflops *
                                  machine.rates.bf16_tflops / machine.curve_rates.bf16_tflops;
  best.memory_gbps = machine.rates.memory_gbps;
  return best;
}

double best_all_reduce_gbps(const MachineProfile& machine, size_t ranks) {
  if (ranks <= 1) return 0;
  double best = 0;
  const size_t measured = nearest_ranks(machine, ranks);
  for (const AllReduceCurve& reduce : machine.all_reduce) {
    if (reduce.ranks != measured) continue;
    for (size_t i = 0; i < reduce.curve.bytes.size(); ++i) {
      const double bytes = static_cast<double>(reduce.curve.bytes[i]);
      const double us = on_this_link(machine, reduce.curve, reduce.curve.microseconds[i], false).us;
      best = std::max(best, bytes / us * 1e-3);
    }
  }
  return best;
}

}  // namespace weft::planner
