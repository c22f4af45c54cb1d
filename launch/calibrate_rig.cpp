#include "launch/calibrate_rig.h"

#include <algorithm>
#include <numeric>

#include "parallel/host_communicator.h"
#include "runtime/base/error.h"

namespace weft::launch {
namespace {

constexpr int kRigTag = 100;  // of MPI_Comm_create_group
constexpr double kEnoughUs = 40'000;
constexpr double kQuickUs = 1'000;
constexpr double kTooLongUs = 200'000;  // for a third call, or where one took so long, a second
constexpr size_t kLeastCalls = 3;
constexpr size_t kMostCalls = 2'000;

std::vector<int> first_ranks(size_t n) {
  std::vector<int> ranks;
  for (size_t i = 0; i < n; ++i) ranks.push_back(static_cast<int>(i));
  return ranks;
}

}  // namespace

double us_since(RigClock::time_point start) {
  return std::chrono::duration<double, std::micro>(RigClock::now() - start).count();
}

void compute_for_us(double us) {
  const RigClock::time_point start = RigClock::now();
  while (us_since(start) < us) {
  }
}

double typical(std::vector<double>& times) {
  WEFT_EXPECT(!times.empty());
  const size_t n = times.size() - times.size() / 10;
  std::sort(times.begin(), times.end());
  return std::accumulate(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(n), 0.0) /
         static_cast<double>(n);
}

double median(std::vector<double>& times) {
  WEFT_EXPECT(!times.empty());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

Rig::Rig(const parallel::MpiSession& session, kernels::Stream& stream, size_t n_ranks,
         size_t scratch_bytes, bool quick)
    : stream_(stream),
      group_(parallel::make_host_communicator(session, first_ranks(n_ranks), kRigTag,
                                              std::max(scratch_bytes, sizeof(float)))),
      quick_(quick) {}

void Rig::barrier() const {
  float one = 1;
  if (n_ranks() > 1) group_->all_reduce(&one, 1, DType::f32, stream_);
}

std::vector<double> Rig::all(double us) const {
  std::vector<double> times(n_ranks());
  group_->all_gather(&us, times.data(), sizeof(us), stream_);
  return times;
}

double Rig::mean(double us) const {
  const std::vector<double> times = all(us);
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

double Rig::time_us(const std::function<void()>& call, size_t n_passes) const {
  barrier();
  const RigClock::time_point first = RigClock::now();
  call();  // finds caches and pages as no other does
  const double long_us = us_since(first);
  barrier();
  const std::vector<double> firsts = all(long_us);
  if (*std::max_element(firsts.begin(), firsts.end()) > kTooLongUs) return mean(long_us);
  std::vector<double> times;
  const RigClock::time_point start = RigClock::now();
  const double enough = (quick_ ? kQuickUs : kEnoughUs) / static_cast<double>(n_passes);
  double passed = 0;
  do {
    const RigClock::time_point before = RigClock::now();
    call();
    times.push_back(us_since(before));
    passed = us_since(start);
  } while (passed < (times.size() < kLeastCalls ? kTooLongUs : enough) &&
           times.size() < kMostCalls);
  return mean(typical(times));
}

double Rig::time_each_us(size_t n_calls, const std::function<double()>& call) const {
  barrier();
  std::vector<double> times;
  for (size_t i = 0; i < n_calls; ++i) times.push_back(call());
  return mean(median(times));
}

void Rig::close() { group_->close(); }

}  // namespace weft::launch
