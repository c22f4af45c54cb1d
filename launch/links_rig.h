// What all patterns of `weft bench links` share on one rank: a communicator for the ranks' memory
// and one for the host's, buffers, exact numbers in them, and how a time is taken.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "kernels/device.h"
#include "kernels/gpu_device.h"
#include "launch/links_options.h"
#include "parallel/communicator.h"
#include "parallel/mpi_session.h"
#include "parallel/nvlink_counters.h"
#include "runtime/base/pages.h"

namespace weft::launch {

// A loop of calls as this rank saw it.
struct Loop {
  double us = 0;  // of a call, mean
  size_t n_calls = 0;
  std::optional<double> wire_gbps;  // that this rank's NVLinks sent
};

class LinkRig {
 public:
  // A collective of all ranks, each with its GPU current where `device` has one.
  LinkRig(const parallel::MpiSession& session, const Device& device, const DeviceOptions& options,
          const LinkPlan& plan);

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }
  bool on_gpu() const { return gpu_stream_.has_value(); }
  const LinkPlan& plan() const { return plan_; }
  parallel::Communicator& group() const { return *group_; }
  parallel::Communicator& host() const { return *host_; }
  kernels::Stream& stream() { return stream_; }
  const std::string& transport() const { return transport_; }
  // Why NVLink's counters are not read; empty where they are, and on CPUs.
  const std::string& no_wire() const { return no_wire_; }

  // What this rank's NVLinks have sent, where they count it and messages of `bytes` are long enough
  // for that to mean anything.
  std::optional<uint64_t> wire_bytes(size_t bytes) const;

  // Two buffers of the largest message, rounded up to whole pages of CUDA IPC on a GPU.
  std::byte* in() const { return on_gpu() ? gpu_in_.data() : host_in_.data(); }
  std::byte* out() const { return on_gpu() ? gpu_out_.data() : host_out_.data(); }
  const kernels::GpuBuffer& gpu_out() const { return gpu_out_; }

  // n elements from `first` on of a rank's own numbers.
  void fill(std::byte* to, size_t n, size_t first, int rank);
  // Elements that are not the sum over ranks [first_rank, end_rank) of such numbers.
  size_t count_wrong(std::byte* data, size_t n, size_t first, int first_rank, int end_rank);

  // Until all ranks are here and awake.
  void meet();
  // Until the GPU has done what was asked of it.
  void settle();
  double average(double value);
  size_t total(size_t value);
  // Whether `value` is there on every rank: their average.
  std::optional<double> average(const std::optional<double>& value);

  // The same number of calls on all ranks, about as many as fit in the plan's seconds and at most
  // its iterations; `bytes` of one tell whether NVLink's counters can follow. A collective.
  Loop time(const std::function<void()>& call, size_t bytes);

  void close();

 private:
  const parallel::MpiSession& session_;
  LinkPlan plan_;
  kernels::ThreadPool pool_{1};
  std::optional<kernels::GpuStream> gpu_stream_;
  kernels::Stream stream_;
  std::unique_ptr<parallel::Communicator> host_;
  std::unique_ptr<parallel::Communicator> group_;
  std::string transport_ = "MPI";
  std::string no_wire_;
  Pages host_in_, host_out_;
  kernels::GpuBuffer gpu_in_, gpu_out_, gpu_wrong_;
  std::unique_ptr<parallel::NvLinkCounters> counters_;
};

}  // namespace weft::launch
