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
// The time that a tenth of them stay below: what an undisturbed call takes, where most of them may
// be disturbed by others on the machine. At least one time; their order is changed.
double undisturbed(std::vector<double>& times);

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

  // Microseconds of an undisturbed call, of all that fit in a few milliseconds and at least three
  // (fewer of very long ones), while all ranks of the rig do the same: that of the slowest rank. A
  // collective. With several passes each takes its part of the time.
  double time_us(const std::function<void()>& call, size_t n_passes = 1) const;
  // The same for calls that time themselves: `call` gives one time in microseconds. The number of
  // calls is the same on all ranks.
  double time_each_us(size_t n_calls, const std::function<double()>& call) const;
  void barrier() const;
  void close();

 private:
  double slowest(double us) const;

  kernels::Stream& stream_;
  std::unique_ptr<parallel::Communicator> group_;
  bool quick_;
};

}  // namespace weft::launch
