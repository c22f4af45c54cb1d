// Each pattern as three steps on a rank: what it lays out, what it calls, what must have come.
#include "launch/links_sweep.h"

#include <array>
#include <functional>

namespace weft::launch {
namespace {

using parallel::Transfer;

struct Steps {
  std::function<void()> lay_out;
  std::function<void()> call;
  std::function<size_t()> count_wrong;
  bool idle = false;
};

struct Case {
  LinkRig& rig;
  size_t bytes;  // nccl-tests' size
  size_t n;      // elements of it
  size_t part_bytes;
  size_t part;  // elements of a rank's share of it

  std::byte* place(std::byte* in, int rank) const {
    return in + static_cast<size_t>(rank) * part_bytes;
  }
};

Steps all_reduce(const Case& c) {
  LinkRig& rig = c.rig;
  return {[&] { rig.fill(rig.in(), c.n, 0, rig.rank()); },
          [&] { rig.group().all_reduce(rig.in(), c.n, rig.plan().dtype, rig.stream()); },
          [&] { return rig.count_wrong(rig.in(), c.n, 0, 0, rig.size()); }};
}

Steps all_gather(const Case& c, bool in_place) {
  LinkRig& rig = c.rig;
  std::byte* mine = in_place ? c.place(rig.out(), rig.rank()) : rig.in();
  return {[&c, &rig, mine] { rig.fill(mine, c.part, 0, rig.rank()); },
          [&c, &rig, mine] { rig.group().all_gather(mine, rig.out(), c.part_bytes, rig.stream()); },
          [&c, &rig] {
            size_t n_wrong = 0;
            for (int r = 0; r < rig.size(); ++r)
              n_wrong += rig.count_wrong(c.place(rig.out(), r), c.part, 0, r, r + 1);
            return n_wrong;
          }};
}

// To each rank its own part of the sender's numbers.
Steps all_to_all(const Case& c) {
  LinkRig& rig = c.rig;
  return {[&] { rig.fill(rig.in(), c.n, 0, rig.rank()); },
          [&] { rig.group().all_to_all(rig.in(), rig.out(), c.part_bytes, rig.stream()); },
          [&] {
            size_t n_wrong = 0;
            const size_t first = static_cast<size_t>(rig.rank()) * c.part;
            for (int r = 0; r < rig.size(); ++r)
              n_wrong += rig.count_wrong(c.place(rig.out(), r), c.part, first, r, r + 1);
            return n_wrong;
          }};
}

// Sends all to one rank and takes as much from another.
Steps exchange(const Case& c, int to, int from) {
  LinkRig& rig = c.rig;
  return {[&] { rig.fill(rig.in(), c.n, 0, rig.rank()); },
          [&c, &rig, to, from] {
            const std::array<Transfer, 2> both = {
                Transfer{Transfer::Kind::send, to, rig.in(), c.bytes},
                Transfer{Transfer::Kind::recv, from, rig.out(), c.bytes}};
            rig.group().exchange(both, rig.stream());
          },
          [&c, &rig, from] { return rig.count_wrong(rig.out(), c.n, 0, from, from + 1); }};
}

// A rank without a neighbour: of an odd number, the last.
Steps nothing() {
  return {[] {}, [] {}, [] { return size_t{0}; }, true};
}

Steps steps_of(const Case& c, bool in_place) {
  const int me = c.rig.rank(), n = c.rig.size();
  switch (c.rig.plan().test) {
    case LinkTest::all_reduce:
      return all_reduce(c);
    case LinkTest::all_gather:
      return all_gather(c, in_place);
    case LinkTest::all_to_all:
      return all_to_all(c);
    case LinkTest::send_recv:
      return (me ^ 1) < n ? exchange(c, me ^ 1, me ^ 1) : nothing();
    default:
      return exchange(c, (me + 1) % n, (me + n - 1) % n);
  }
}

struct Measured {
  LinkTimes times;
  std::optional<double> wire_gbps;
};

Measured measure(const Case& c, bool in_place) {
  LinkRig& rig = c.rig;
  const LinkTest test = rig.plan().test;
  const Steps steps = steps_of(c, in_place);
  steps.lay_out();
  const Loop loop = rig.time(steps.call, c.bytes);
  steps.lay_out();
  steps.call();
  rig.settle();
  const size_t n_wrong = rig.total(steps.count_wrong());
  const auto ranks = static_cast<size_t>(rig.size());
  const auto n_busy = static_cast<double>(rig.total(steps.idle ? 0 : 1));
  const double us = rig.average(steps.idle ? 0.0 : loop.us) * static_cast<double>(ranks) / n_busy;
  return {link_times(test, ranks, c.bytes, us, n_wrong), rig.average(loop.wire_gbps)};
}

}  // namespace

SweepRow measure_size(LinkRig& rig, size_t bytes) {
  const LinkTest test = rig.plan().test;
  const size_t element = dtype_bytes(rig.plan().dtype), ranks = rig.plan().n_ranks;
  const Case c{rig, bytes, bytes / element, bytes / ranks, bytes / element / ranks};
  const bool shared_out = test == LinkTest::all_gather || test == LinkTest::all_to_all;
  SweepRow row;
  row.bytes = bytes;
  row.count = shared_out ? c.part : c.n;
  if (test != LinkTest::all_reduce) {
    const Measured measured = measure(c, false);
    row.out_of_place = measured.times;
    row.wire_gbps = measured.wire_gbps;
  }
  if (test == LinkTest::all_reduce || test == LinkTest::all_gather) {
    const Measured measured = measure(c, true);
    row.in_place = measured.times;
    row.wire_gbps = measured.wire_gbps;
  }
  return row;
}

}  // namespace weft::launch
