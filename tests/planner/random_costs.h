// Cost and serving models made of random tables that keep what stage_cost.h promises and nothing
// more: no smoothness, no proportion. Times are multiples of 1/16 ms, so sums are exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "planner/stage_cost.h"

namespace weft::planner {

inline uint64_t hash_of(std::initializer_list<uint64_t> values) {
  uint64_t h = 0x9e3779b97f4a7c15;
  for (const uint64_t value : values) {
    h = (h ^ value) * 0xbf58476d1ce4e5b9;
    h ^= h >> 29;
  }
  return h ^ h >> 32;
}

struct RandomCostOptions {
  uint64_t seed = 0;
  uint64_t spread = 8;  // of a layer's time, in 1/16 ms; small ones give many ties
  uint64_t edge_spread = 4;
  size_t memory = 100;      // bytes of a GPU, give or take by class
  size_t layer_bytes = 10;  // of one layer on one rank, give or take
  bool shares_hosts = false;
};

class RandomCosts : public StageCosts {
 public:
  explicit RandomCosts(const RandomCostOptions& options) : o_(options) {}

  bool shares_hosts() const override { return o_.shares_hosts; }

  StageTimes stage(const StageShape& s, const Schedule& schedule) const override {
    const size_t batch =
        (schedule.batch + schedule.batches_in_flight - 1) / schedule.batches_in_flight;
    return {ms(s, {1, schedule.prefill_chunk}), ms(s, {2, batch})};
  }

  StageTimes edge(const EdgeShape& e, const Schedule& schedule) const override {
    const size_t batch =
        (schedule.batch + schedule.batches_in_flight - 1) / schedule.batches_in_flight;
    return {edge_ms(e, 3, schedule.prefill_chunk), edge_ms(e, 4, batch)};
  }

  double handover_ms(const EdgeShape& e, size_t n_layers, const Schedule& schedule) const override {
    double ms = edge_ms(e, 5, schedule.prefill_chunk);
    for (size_t i = 0; i < n_layers; ++i)
      ms += static_cast<double>(hash_of({o_.seed, 9, schedule.prefill_chunk, i}) % 3) / 16;
    return ms;
  }

  size_t fixed_bytes(const StageShape& s, const Schedule& schedule) const override {
    const size_t batch =
        (schedule.batch + schedule.batches_in_flight - 1) / schedule.batches_in_flight;
    size_t bytes = s.has_embedding * 3 + s.has_head * 5;
    for (size_t i = 0; i < s.n_layers; ++i)
      bytes += 1 + hash_of({o_.seed, 6, s.tp, s.ep, s.node_class, i}) % (2 * o_.layer_bytes) / s.tp;
    return bytes + batch / 2 + schedule.batch / 4 + schedule.batches_in_flight / 2 +
           schedule.prefill_chunk / 1024;
  }
  size_t kv_block_bytes(const StageShape& s) const override { return (s.n_layers + 1) / 2; }
  size_t rank_memory_bytes(size_t node_class) const override {
    return o_.memory + hash_of({o_.seed, 7, node_class}) % (o_.memory / 2 + 1);
  }

 private:
  double ms(const StageShape& s, std::initializer_list<uint64_t> what) const {
    const uint64_t phase = *what.begin(), size = *(what.begin() + 1);
    const uint64_t ends = s.has_embedding * 2 + s.has_head;
    uint64_t sum = hash_of({o_.seed, phase, size, 8, ends, s.tp, s.node_class}) % o_.spread;
    for (size_t i = 0; i < s.n_layers; ++i)
      sum += 1 + hash_of({o_.seed, phase, size, s.tp, s.ep, s.node_class, s.n_nodes, i}) %
                     (o_.spread * (1 + 4 / s.tp));
    for (size_t i = s.tp; i < s.at_once; ++i)
      sum += hash_of({o_.seed, phase, size, 10, i}) % o_.spread;
    return static_cast<double>(sum) / 16;
  }

  double edge_ms(const EdgeShape& e, uint64_t phase, uint64_t size) const {
    const auto part = [&](uint64_t salt) {
      return hash_of({o_.seed, phase, size, e.from_tp, e.to_tp, e.from_class, e.to_class, salt}) %
             o_.edge_spread;
    };
    return static_cast<double>(part(1) + (e.across_nodes ? part(2) : 0)) / 16;
  }

  RandomCostOptions o_;
};

// A closed form of the kind that is meant: pipelined steps, prefills of others, queues.
class SimpleServing : public ServingModel {
 public:
  SimpleServing(size_t prompt_tokens, size_t output_tokens)
      : prompt_(static_cast<double>(prompt_tokens)), output_(static_cast<double>(output_tokens)) {}

  Served served(const PipelineTimes& times, const Schedule& schedule,
                double concurrency) const override {
    const double chunks = std::ceil(prompt_ / static_cast<double>(schedule.prefill_chunk));
    const double prefill = times.prefill_sum_ms + (chunks - 1) * times.prefill_max_ms;
    const double period = std::max(
        times.decode_sum_ms, static_cast<double>(schedule.batches_in_flight) * times.decode_max_ms);
    const auto places = static_cast<double>(schedule.batch);
    const double others = times.separate_groups ? 0 : chunks * times.prefill_max_ms / output_;
    Served one;
    one.concurrency = std::min(concurrency, places);
    one.saturated = concurrency > places;
    one.tpot_ms = period + others * one.concurrency;
    const double queue = std::max(0.0, concurrency / places - 1);
    one.ttft_ms = prefill + prefill * one.concurrency / 8 + queue * output_ * one.tpot_ms;
    const double busy = one.ttft_ms - queue * output_ * one.tpot_ms + output_ * one.tpot_ms;
    one.tokens_per_s = busy == 0 ? 0 : one.concurrency * output_ * 1000 / busy;
    return one;
  }

 private:
  double prompt_, output_;
};

}  // namespace weft::planner
