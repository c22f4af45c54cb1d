// What one GPU model does: data-sheet rates, and curves measured on it (products by shape,
// attention, all-reduce, send and receive), each with its source. A profile without curves of its
// own names a base whose curves are scaled by the ratio of the data-sheet rates.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "planner/number_format.h"

namespace weft::planner {

// Rates in GB/s (10^9 bytes a second) and TFLOP/s, dense.
struct GpuRates {
  double memory_gib = 0;  // as the driver reports it
  double memory_gbps = 0;
  double bf16_tflops = 0;
  double fp8_tflops = 0;   // 0: the GPU has no fp8
  double nvlink_gbps = 0;  // to all peers, in one direction

  bool operator==(const GpuRates&) const = default;
};

// microseconds[(n * inputs.size() + k) * tokens.size() + m] of [tokens[m], inputs[k]] x
// [inputs[k], outputs[n]]; all three sizes ascend.
struct ProductCurve {
  NumberFormat format = NumberFormat::bf16;  // bf16 or fp8
  size_t ranks = 1;                          // of a node, that computed at once
  bool cached = false;                       // the weights came from a cache, else from memory
  std::string source;
  std::vector<size_t> tokens;
  std::vector<size_t> outputs;
  std::vector<size_t> inputs;
  std::vector<double> microseconds;

  bool operator==(const ProductCurve&) const = default;
};

// The share of its weights that a rank reads from memory, by how much it reads in a step, round
// after round: 0 where all of it stays in a cache, 1 where none does. Both ascend.
struct CacheCurve {
  size_t ranks = 1;  // of a node, that read at once
  std::string source;
  std::vector<double> mib;
  std::vector<double> missed;

  bool operator==(const CacheCurve&) const = default;
};

// One token a sequence against its KV cache: bytes read / gbps, or the query heads' arithmetic /
// tflops where that is slower, + tile_us for each sequence and KV head. Kernel starts are the
// engine's.
struct DecodeAttentionCurve {
  NumberFormat kv = NumberFormat::bf16;
  size_t ranks = 1;
  std::string source;
  double gbps = 0;
  double tflops = 0;  // 0: never bound by arithmetic
  double tile_us = 0;
  size_t most_context = 0;  // measured up to here, tokens

  bool operator==(const DecodeAttentionCurve&) const = default;
};

// Causal attention over s tokens: FLOPs / (tflops * s / (s + half_tokens)).
struct PrefillAttentionCurve {
  size_t ranks = 1;
  std::string source;
  double tflops = 0;
  double half_tokens = 0;
  size_t most_context = 0;

  bool operator==(const PrefillAttentionCurve&) const = default;
};

// A time for each message size, ascending.
struct MessageCurve {
  std::string source;
  std::vector<size_t> bytes;
  std::vector<double> microseconds;

  bool operator==(const MessageCurve&) const = default;
};

struct AllReduceCurve {
  std::string implementation;
  size_t ranks = 2;  // of one node
  MessageCurve curve;

  bool operator==(const AllReduceCurve&) const = default;
};

// What weft itself takes beside the curves above, timed on this machine: stands for its engine
// profile's constants there.
struct OverheadCurve {
  size_t ranks = 1;
  std::string source;
  double step_us = 0;      // of a step on one stage: the batch, the scheduler, waking up
  double layer_us = 0;     // of a layer: kernel starts
  double pass_gbps = 0;    // of element-wise passes over [tokens, hidden]
  double sample_us = 0;    // of a sequence that is sampled
  double sample_gbps = 0;  // over its float32 logits
  // Of its own work, what a rank waits at sums for the slowest of its stage.
  double wait_share = 0;

  bool operator==(const OverheadCurve&) const = default;
};

// Curves of ranks that shared a node's cores and memory: of those, the one for so many ranks at
// once or the next larger, else the largest. On GPUs, which share nothing, there is one curve.
template <class Curve, class Wanted>
const Curve* for_ranks(const std::vector<Curve>& curves, size_t ranks, Wanted&& wanted) {
  const Curve* best = nullptr;
  for (const Curve& curve : curves) {
    if (!wanted(curve)) continue;
    const bool closer = best == nullptr ||
                        (best->ranks < ranks ? curve.ranks > best->ranks
                                             : curve.ranks >= ranks && curve.ranks < best->ranks);
    if (closer) best = &curve;
  }
  return best;
}
template <class Curve>
const Curve* for_ranks(const std::vector<Curve>& curves, size_t ranks) {
  return for_ranks(curves, ranks, [](const Curve&) { return true; });
}

struct MachineProfile {
  std::string name;                  // as cluster files say it: "h100-sxm"
  std::vector<std::string> aliases;  // as others call it: "h100"
  GpuRates rates;
  GpuRates curve_rates;     // of the GPU that products and attention were measured on
  std::string base;         // whose curves are used beside its own; "" = none
  bool other_chip = false;  // the base is of another architecture: every time is extrapolated
  std::vector<ProductCurve> products;
  std::vector<CacheCurve> caches;  // none where all weights are taken to come from memory
  std::vector<DecodeAttentionCurve> decode_attention;
  std::vector<PrefillAttentionCurve> prefill_attention;  // one for each number of ranks
  std::vector<AllReduceCurve> all_reduce;
  std::vector<MessageCurve> send_recv_inside;  // one, or none where one rank was calibrated alone
  std::vector<MessageCurve> send_recv_across;  // one, or none where one node was
  std::vector<OverheadCurve> overheads;        // none where weft was not timed

  bool operator==(const MachineProfile&) const = default;
};

// YAML, version 1. Reads a base from the same folder. Throws Error with file, line and column.
MachineProfile read_machine_profile(const std::string& path);
// `folder` holds the base, if one is named.
MachineProfile parse_machine_profile(std::string_view text, const std::string& where,
                                     const std::string& folder);
// The profile of a GPU model, by name or alias, in a folder of them; throws Error with the known
// ones.
MachineProfile find_machine_profile(const std::string& folder, const std::string& gpu);
// Only for profiles without a base. `comment` comes first, line by line.
std::string to_yaml(const MachineProfile& profile, std::string_view comment = {});

}  // namespace weft::planner
