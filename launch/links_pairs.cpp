// Copies are timed on the GPU, between two events in a queue of copies, so that both directions run
// all the while; messages by the clocks of both ranks, from a handshake to the last one's arrival.
#include "launch/links_pairs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "kernels/gpu_links.h"

namespace weft::launch {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::GpuEvent;
using parallel::Transfer;

constexpr double kNever = std::numeric_limits<double>::quiet_NaN();
constexpr double kEnoughUs = 20'000;
constexpr size_t kMostCalls = 200;
constexpr size_t kLeastCalls = 4;
constexpr size_t kLeadIn = 2;  // copies before and after the timed ones
constexpr int kRoundTrips = 200;
constexpr size_t kSmallCopies = 500;
constexpr char kHello = 1;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

size_t calls_for(double one_us) {
  return std::clamp(static_cast<size_t>(kEnoughUs / std::max(one_us, 1.0)), kLeastCalls,
                    kMostCalls);
}

// Both wait for each other's byte, twice: the second time both are awake.
void handshake(LinkRig& rig, int peer) {
  for (int i = 0; i < 2; ++i) {
    char mine = kHello, theirs = 0;
    const std::array<Transfer, 2> both = {Transfer{Transfer::Kind::send, peer, &mine, 1},
                                          Transfer{Transfer::Kind::recv, peer, &theirs, 1}};
    rig.host().exchange(both, rig.stream());
  }
}

}  // namespace

// What this rank knows: rows of the pairs that it sends in.
struct LinkPairs::Found {
  explicit Found(int n)
      : one_way(static_cast<size_t>(n), kNever),
        two_way(static_cast<size_t>(n), kNever),
        latency(static_cast<size_t>(n), kNever),
        wire(static_cast<size_t>(n), kNever) {}
  std::vector<double> one_way, two_way, latency, wire;
  size_t n_wrong = 0;
};

LinkPairs::LinkPairs(LinkRig& rig) : rig_(rig) {
  if (!rig.on_gpu()) return;
  map_ = parallel::PeerMap::make(rig.host(), rig.gpu_out(), rig.stream(), no_copies_);
}

LinkPairs::Way LinkPairs::way_of(size_t index) const {
  if (map_ == nullptr) return Way::group;
  return static_cast<Way>(index);
}

std::string LinkPairs::name_of(Way way) const {
  if (way == Way::copy_engine) return "copy engine";
  return way == Way::kernel ? "kernel" : rig_.transport();
}

std::vector<std::string> LinkPairs::ways() const {
  if (map_ == nullptr) return {name_of(Way::group)};
  return {name_of(Way::copy_engine), name_of(Way::kernel), name_of(Way::group)};
}

bool LinkPairs::reaches(Way way, int a, int b) const {
  if (way == Way::group) return true;
  return rig_.rank() == a ? map_->of(b) != nullptr : map_->of(a) != nullptr;
}

// From this rank's own buffer into the other's.
void LinkPairs::enqueue_copy(Way way, int to, size_t bytes) {
  ++n_sent_;
  if (way == Way::kernel)
    kernels::gpu_copy_by_kernel(map_->of(to), rig_.in(), bytes, rig_.stream().gpu());
  else
    kernels::copy_bytes(map_->of(to), rig_.in(), bytes, rig_.stream().gpu());
}

size_t LinkPairs::agree_on_calls(int peer, bool decides, double one_us) {
  size_t n = calls_for(one_us);
  const Transfer transfer{decides ? Transfer::Kind::send : Transfer::Kind::recv, peer, &n,
                          sizeof n};
  rig_.host().exchange({&transfer, 1}, rig_.stream());
  return n;
}

double LinkPairs::copy_us(Way way, int to, size_t bytes, bool both) {
  const kernels::CudaStream stream = rig_.stream().gpu();
  const auto start = Clock::now();
  enqueue_copy(way, to, bytes);
  rig_.settle();
  size_t n = calls_for(us_since(start));
  if (both) {
    n = agree_on_calls(to, rig_.rank() < to, us_since(start));
    handshake(rig_, to);
  }
  GpuEvent begin(true), end(true);
  for (size_t i = 0; i < n + 2 * kLeadIn; ++i) {
    if (i == kLeadIn) begin.record(stream);
    enqueue_copy(way, to, bytes);
    if (i + 1 == kLeadIn + n) end.record(stream);
  }
  rig_.settle();
  return end.ms_since(begin) * 1e3 / static_cast<double>(n);
}

double LinkPairs::group_us(int peer, size_t bytes, bool sends, bool receives) {
  std::vector<Transfer> transfers;
  if (sends) transfers.push_back({Transfer::Kind::send, peer, rig_.in(), bytes});
  if (receives) transfers.push_back({Transfer::Kind::recv, peer, rig_.out(), bytes});
  const auto call = [&] {
    rig_.group().exchange(transfers, rig_.stream());
    ++n_sent_;
  };
  double one_us = 0;
  for (int i = 0; i < 2; ++i) {  // the first connects the two
    handshake(rig_, peer);
    const auto start = Clock::now();
    call();
    rig_.settle();
    one_us = us_since(start);
  }
  const bool decides = receives && (!sends || rig_.rank() < peer);
  const size_t n = agree_on_calls(peer, decides, one_us);
  handshake(rig_, peer);
  const auto start = Clock::now();
  for (size_t i = 0; i < n; ++i) call();
  rig_.settle();
  const double mine = us_since(start) / static_cast<double>(n);
  double theirs = 0;
  const std::array<Transfer, 2> times = {
      Transfer{Transfer::Kind::send, peer, const_cast<double*>(&mine), sizeof mine},
      Transfer{Transfer::Kind::recv, peer, &theirs, sizeof theirs}};
  rig_.host().exchange(times, rig_.stream());
  return std::max(mine, theirs);
}

// Half a round trip.
double LinkPairs::group_latency_us(int peer, size_t bytes, bool first) {
  const Transfer send{Transfer::Kind::send, peer, rig_.in(), bytes};
  const Transfer receive{Transfer::Kind::recv, peer, rig_.out(), bytes};
  handshake(rig_, peer);
  Clock::time_point start;
  constexpr int kLead = 10;
  for (int i = 0; i < kLead + kRoundTrips; ++i) {
    if (i == kLead) start = Clock::now();
    rig_.group().exchange({first ? &send : &receive, 1}, rig_.stream());
    rig_.group().exchange({first ? &receive : &send, 1}, rig_.stream());
    rig_.settle();
  }
  return us_since(start) / (2 * kRoundTrips);
}

// What arrives is compared once it is there; what lay there before is another rank's numbers.
void LinkPairs::one_way(Way way, int from, int to, size_t bytes, Found& found) {
  const size_t n = bytes / dtype_bytes(rig_.plan().dtype);
  const int me = rig_.rank();
  if (me == from) rig_.fill(rig_.in(), n, 0, me);
  if (me == to) rig_.fill(rig_.out(), n, 0, me);
  rig_.settle();
  rig_.meet();
  double us = kNever;
  n_sent_ = 0;
  const std::optional<uint64_t> before = rig_.wire_bytes(bytes);
  if (way == Way::group && (me == from || me == to))
    us = group_us(me == from ? to : from, bytes, me == from, me == to);
  if (way != Way::group && me == from) us = copy_us(way, to, bytes, false);
  const std::optional<uint64_t> after = rig_.wire_bytes(bytes);
  rig_.meet();
  if (me == from) {
    const double rate = algorithm_gbps(bytes, us);
    found.one_way[static_cast<size_t>(to)] = rate;
    if (before && after)  // wire bytes of a payload byte, at that rate
      found.wire[static_cast<size_t>(to)] =
          rate * static_cast<double>(*after - *before) / static_cast<double>(n_sent_ * bytes);
  }
  if (me == to) found.n_wrong += rig_.count_wrong(rig_.out(), n, 0, from, from + 1);
}

void LinkPairs::two_way(Way way, int a, int b, size_t bytes, Found& found) {
  const size_t n = bytes / dtype_bytes(rig_.plan().dtype);
  const int me = rig_.rank();
  const bool takes_part = me == a || me == b;
  const int peer = me == a ? b : a;
  if (takes_part) {
    rig_.fill(rig_.in(), n, 0, me);
    rig_.fill(rig_.out(), n, 0, me);
  }
  rig_.settle();
  rig_.meet();
  double rate = 0;
  if (takes_part)
    rate = algorithm_gbps(bytes, way == Way::group ? group_us(peer, bytes, true, true)
                                                   : copy_us(way, peer, bytes, true));
  rig_.meet();
  if (!takes_part) return;
  double theirs = 0;
  const std::array<Transfer, 2> rates = {
      Transfer{Transfer::Kind::send, peer, &rate, sizeof rate},
      Transfer{Transfer::Kind::recv, peer, &theirs, sizeof theirs}};
  rig_.host().exchange(rates, rig_.stream());
  found.two_way[static_cast<size_t>(peer)] = rate + theirs;
  found.n_wrong += rig_.count_wrong(rig_.out(), n, 0, peer, peer + 1);
}

void LinkPairs::latency(Way way, int from, int to, size_t bytes, Found& found) {
  rig_.meet();
  const int me = rig_.rank();
  if (me != from && !(way == Way::group && me == to)) return;
  double us = 0;
  if (way == Way::group) {
    us = group_latency_us(me == from ? to : from, bytes, me == from);
  } else {
    const kernels::CudaStream stream = rig_.stream().gpu();
    GpuEvent begin(true), end(true);
    for (size_t i = 0; i < kLeadIn + kSmallCopies; ++i) {
      if (i == kLeadIn) begin.record(stream);
      enqueue_copy(way, to, bytes);
    }
    end.record(stream);
    rig_.settle();
    us = end.ms_since(begin) * 1e3 / static_cast<double>(kSmallCopies);
  }
  if (me == from) found.latency[static_cast<size_t>(to)] = us;
}

PairWay LinkPairs::gathered(Way way, const Found& mine) {
  const auto n = static_cast<size_t>(rig_.size());
  PairWay all;
  all.name = name_of(way);
  const auto rows = [&](const std::vector<double>& row) {
    std::vector<double> matrix(n * n);
    rig_.host().all_gather(row.data(), matrix.data(), n * sizeof(double), rig_.stream());
    return matrix;
  };
  all.one_way_gbps = rows(mine.one_way);
  all.two_way_gbps = rows(mine.two_way);
  all.latency_us = rows(mine.latency);
  all.wire_gbps = rows(mine.wire);
  const auto known = [](double gbps) { return std::isfinite(gbps); };
  if (std::none_of(all.wire_gbps.begin(), all.wire_gbps.end(), known)) all.wire_gbps.clear();
  all.n_wrong = rig_.total(mine.n_wrong);
  return all;
}

PairWay LinkPairs::measure(size_t index, size_t latency_bytes, size_t rate_bytes) {
  const Way way = way_of(index);
  Found found(rig_.size());
  for (int a = 0; a < rig_.size(); ++a)
    for (int b = 0; b < rig_.size(); ++b) {
      const bool takes_part = rig_.rank() == a || rig_.rank() == b;
      const bool can = rig_.total(takes_part && reaches(way, a, b) ? 1 : 0) == 2;
      if (a == b || !can) continue;
      one_way(way, a, b, rate_bytes, found);
      latency(way, a, b, latency_bytes, found);
      if (a < b) two_way(way, a, b, rate_bytes, found);
    }
  return gathered(way, found);
}

PairWay LinkPairs::measure_ring(size_t rate_bytes) {
  const Way way = way_of(0);
  Found found(rig_.size());
  for (int a = 0; a < rig_.size(); ++a) {
    const int b = (a + 1) % rig_.size();
    const bool takes_part = rig_.rank() == a || rig_.rank() == b;
    if (rig_.total(takes_part && reaches(way, a, b) ? 1 : 0) == 2)
      one_way(way, a, b, rate_bytes, found);
  }
  return gathered(way, found);
}

void LinkPairs::close() {
  if (map_ != nullptr) map_->close(rig_.host(), rig_.stream());
}

}  // namespace weft::launch
