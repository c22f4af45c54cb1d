// What `weft bench links` found, and how it reads: nccl-tests' columns and definitions (its
// doc/PERFORMANCE.md) for what all ranks do at once, matrices for pairs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/links_options.h"

namespace weft::launch {

// GB/s are 10^9 bytes a second everywhere. algbw is a size over a time; busbw is algbw times a
// factor that makes it the load of a link whatever the number of ranks: 2(n-1)/n for all-reduce,
// (n-1)/n for all-gather and all-to-all, 1 where a rank sends to one other.
double algorithm_gbps(size_t bytes, double us);
double bus_factor(LinkTest test, size_t n_ranks);

struct LinkTimes {
  double us = 0;
  double algorithm_gbps = 0;
  double bus_gbps = 0;
  size_t n_wrong = 0;  // elements, of all ranks
};
LinkTimes link_times(LinkTest test, size_t n_ranks, size_t bytes, double us, size_t n_wrong);

// A size of the sweep. `bytes` is nccl-tests' size (of a gather: all parts together), `count` the
// elements that a rank gives to each call.
struct SweepRow {
  size_t bytes = 0;
  size_t count = 0;
  std::optional<LinkTimes> out_of_place;  // none: the operation has no such form
  std::optional<LinkTimes> in_place;
  std::optional<double> wire_gbps;  // that a GPU's NVLinks sent meanwhile, mean over ranks
};

// One way of getting bytes from rank to rank. [n * n], row sends, column receives; NaN where it
// can't be. Two-way: both directions at once, added.
struct PairWay {
  std::string name;  // "copy engine", "kernel", "NCCL", "MPI"
  std::vector<double> one_way_gbps;
  std::vector<double> two_way_gbps;
  std::vector<double> latency_us;
  // What the sender's NVLinks sent meanwhile, one way, as they count it; empty where they don't.
  std::vector<double> wire_gbps;
  size_t n_wrong = 0;
};

// A sum of one size by each way, replayed in a graph (on CPUs: one after another).
struct SumRow {
  size_t bytes = 0;
  std::vector<double> us;  // [ways] NaN where a way can't do it
  size_t n_wrong = 0;
};

struct SlowPair {
  int from = 0;
  int to = 0;
  double gbps = 0;
  double median_gbps = 0;
};
inline constexpr double kSlowPair = 0.7;  // of the median

// A rate that others are a share of, with its name in words.
struct RateName {
  double gbps = 0;
  std::string words;  // "copy engine, rank 0 to 1"
};

struct LinkReport {
  LinkTest test = LinkTest::p2p;
  DType dtype = DType::f32;
  bool graph = false;
  bool bound = true;
  size_t n_ranks = 0;
  size_t n_hosts = 1;
  std::string device;     // "CPU", "NVIDIA H200"
  std::string transport;  // "MPI", "NCCL, sums up to 512 KiB by peer memory"
  std::string no_copies;  // why there are no copies between GPUs; empty where there are or on CPUs
  std::string no_wire;    // why NVLink's counters are not read; empty where they are
  size_t latency_bytes = 0;
  size_t rate_bytes = 0;
  std::vector<std::string> places;        // [n] "nodeA, GPU 0000:18:00.0"
  std::vector<int> host_of;               // [n]
  std::vector<std::string> ways_between;  // [n * n] "NVLink x18", "PHB", "between hosts"
  std::vector<SweepRow> rows;
  std::vector<PairWay> pairs;
  std::vector<std::string> sum_ways;
  std::vector<SumRow> sums;
  std::optional<RateName> sheet;  // one direction
  std::optional<RateName> peak;   // measured here, one direction

  size_t n_wrong() const;
};

// Pairs whose one-way rate is below kSlowPair of the median of the pairs within a host, or of those
// between hosts.
std::vector<SlowPair> slow_pairs(const LinkReport& report, const PairWay& way);
// The largest one-way rate of any way, named; none without pairs.
std::optional<RateName> fastest_pair(const LinkReport& report, const std::vector<PairWay>& ways);

// The text comes out as it is measured: head, a line a size (or a block a way), then the rest.
std::string head_text(const LinkReport& report);
std::string row_text(const LinkReport& report, const SweepRow& row);
std::string row_text(const LinkReport& report, const SumRow& row);
std::string way_text(const LinkReport& report, const PairWay& way);
std::string tail_text(const LinkReport& report);

std::string links_json(const LinkReport& report);
std::string links_html(const LinkReport& report);

}  // namespace weft::launch
