// Microseconds of one kernel or message on one GPU, from a machine profile's curves. Outside what
// was measured an estimate says so.
#pragma once

#include <cstddef>

#include "planner/machine_profile.h"

namespace weft::planner {

struct Estimate {
  double us = 0;
  bool extrapolated = false;

  Estimate& operator+=(const Estimate& other) {
    us += other.us;
    extrapolated = extrapolated || other.extrapolated;
    return *this;
  }
  friend Estimate operator+(Estimate a, const Estimate& b) { return a += b; }
  friend Estimate operator*(Estimate a, double factor) {
    a.us *= factor;
    return a;
  }
};

// Least microseconds by data-sheet rates: the slower of arithmetic and memory.
// [tokens, inputs] x [inputs, outputs], weights in `format`, activations in two bytes at most.
double product_roof_us(const GpuRates& rates, NumberFormat format, double tokens, double outputs,
                       double inputs);

// `ranks` below: of the node, that compute at once.

// The measured time, interpolated in the logarithms of its sizes and scaled to this GPU by the
// ratio of the roofs; beyond the curve by the ratio of the roofs too. int8 is priced as fp8, int4
// as bf16 products that read a quarter of the bytes: both extrapolated.
// `missed`: the share of the weights that come from memory; the others come from a cache.
Estimate product_us(const MachineProfile& machine, NumberFormat format, size_t tokens,
                    size_t outputs, size_t inputs, size_t ranks = 1, double missed = 1);

// That share where a rank reads so many bytes in each step. 1 where the profile knows of no caches.
double missed_share(const MachineProfile& machine, double step_bytes, size_t ranks);

// Heads of one rank.
struct HeadCounts {
  size_t query = 1;
  size_t kv = 1;
  size_t dim = 1;
};

// n_sequences tokens, each against `context` cached tokens.
Estimate decode_attention_us(const MachineProfile& machine, NumberFormat key, NumberFormat value,
                             size_t n_sequences, double context, const HeadCounts& heads,
                             size_t ranks = 1);

// `tokens` new tokens of one sequence after `prior` cached ones.
Estimate prefill_attention_us(const MachineProfile& machine, double tokens, double prior,
                              const HeadCounts& heads, size_t ranks = 1);

// The fastest implementation measured for so many ranks of one node. Rank counts between or beyond
// those measured take the next larger, or the largest.
Estimate all_reduce_us(const MachineProfile& machine, size_t ranks, double bytes);

// Links between nodes, per GPU; a rate of 0 stands for the profile's own measured card.
struct NodeLink {
  double gbps = 0;
  double latency_us = 0;
};

// A reduce inside each node, an exchange of the slices over the cards, a gather inside: ranks of
// `n_nodes` nodes. Always extrapolated: no such curve is measured.
Estimate all_reduce_across_us(const MachineProfile& machine, const NodeLink& link, size_t ranks,
                              size_t n_nodes, double bytes);

// Throws Error where the profile has no such curve.
Estimate send_recv_us(const MachineProfile& machine, const NodeLink& link, bool across_nodes,
                      double bytes);

// Highest rates that the curves show on this GPU, for bounds that nothing can beat.
struct BestRates {
  double product_tflops = 0;  // of that format
  double prefill_attention_tflops = 0;
  double memory_gbps = 0;  // data sheet
};
BestRates best_rates(const MachineProfile& machine, NumberFormat format);
// Bytes of an all-reduce over its time, at the curve's best size; 0 for one rank.
double best_all_reduce_gbps(const MachineProfile& machine, size_t ranks);

}  // namespace weft::planner
