// What every measurement of `weft bench calibrate` shares: some ranks of a node that compute at
// once, and how a time is taken.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "parallel/communicator.h"
#include "parallel/mpi_session.h"

namespace weft::launch {

using RigClock = std::chrono::steady_clock;

// Microseconds since.
double us_since(RigClock::time_point start);
// Holds the core so long, as a stage does that computes.
void compute_for_us(double us);
// Their mean but for the longest tenth: what a run takes too, which a few long pauses of the
// machine do not decide. At least one time; their order is changed.
double typical(std::vector<double>& times);

// The middle one. At least one; their order is changed.
double median(std::vector<double>& times);

class Rig {
 public:
  // Ranks 0 to n_ranks - 1 of the world, of which this must be one; a collective of them.
  // `scratch_bytes`: the largest sum.
  Rig(const parallel::MpiSession& session, kernels::Stream& stream, size_t n_ranks,
      size_t scratch_bytes, bool quick);

  size_t n_ranks() const { return static_cast<size_t>(group_->size()); }
  kernels::Stream& stream() const { return stream_; }
  parallel::Communicator& group() const { return *group_; }
  bool quick() const { return quick_; }

  // Microseconds of a typical call, of all that fit in a few milliseconds and at least three (fewer
  // of very long ones), while all ranks of the rig do the same: the mean over ranks. A collective.
  // With several passes each takes its part of the time.
  double time_us(const std::function<void()>& call, size_t n_passes = 1) const;
  // The median of calls that time themselves, likewise the mean over ranks: `call` gives one time
  // in microseconds. The number of calls is the same on all ranks.
  double time_each_us(size_t n_calls, const std::function<double()>& call) const;
  // Over the rig's ranks; a collective.
  double mean(double us) const;
  void barrier() const;
  void close();

 private:
  std::vector<double> all(double us) const;

  kernels::Stream& stream_;
  std::unique_ptr<parallel::Communicator> group_;
  bool quick_;
};

}  // namespace weft::launch
