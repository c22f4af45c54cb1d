#include "launch/links_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "parallel/host_communicator.h"
#include "parallel/nccl_communicator.h"
#include "parallel/peer_communicator.h"

namespace weft::launch {
namespace {

constexpr int kNcclTag = 210;  // of MPI_Comm_create_group
constexpr size_t kChain = 50;  // sums of one graph
constexpr size_t kReplays = 20;
// Beyond these a sum in one or two steps over peer memory is no candidate, and takes much memory.
constexpr size_t kMostOneShot = size_t{4} << 20;
constexpr size_t kMostTwoShot = size_t{64} << 20;

std::vector<int> all_ranks(int n) {
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

LinkSums::LinkSums(LinkRig& rig, const parallel::MpiSession& session, const Device& device,
                   const DeviceOptions& options)
    : rig_(rig) {
  const DType dtype = rig.plan().dtype;
  if (!rig.on_gpu()) {
    ways_.push_back({"MPI", SIZE_MAX, [&rig, dtype](size_t n) {
                       rig.group().all_reduce(rig.in(), n, dtype, rig.stream());
                     }});
    return;
  }
  add_peer_ways();
  const bool shared = rig.total(device.n_sharing > 1 ? 1 : 0) > 0;
  if (shared && options.transport != parallel::GpuTransport::nccl) {
    missing_ += missing_.empty() ? "" : "; ";
    missing_ += "NCCL: ranks share GPUs";
    return;
  }
  try {
    nccl_ = parallel::make_nccl_communicator(
        parallel::make_host_communicator(session, all_ranks(rig.size()), kNcclTag, 0), {},
        rig.stream());
    ways_.push_back({"NCCL", SIZE_MAX, [this, dtype](size_t n) {
                       nccl_->all_reduce(rig_.in(), n, dtype, rig_.stream());
                     }});
  } catch (const parallel::AgreedError& error) {
    missing_ += missing_.empty() ? "" : "; ";
    missing_ += fmt::format("NCCL: {}", error.what());
  }
}

void LinkSums::add_peer_ways() {
  const size_t largest = rig_.plan().largest();
  const parallel::PeerLimits most = {std::min(largest, kMostOneShot),
                                     std::min(largest, kMostTwoShot)};
  std::string why_not;
  memory_ = parallel::PeerMemory::make(rig_.host(), parallel::peer_half_words(rig_.size(), most),
                                       rig_.stream(), why_not);
  if (memory_ == nullptr) {
    missing_ = "peer memory: " + why_not;
    return;
  }
  for (const bool two_shot : {false, true})
    ways_.push_back({two_shot ? "peer two-shot" : "peer one-shot",
                     two_shot ? most.two_shot_bytes : most.one_shot_bytes,
                     [this, two_shot](size_t n) {
                       kernels::GpuPeerSum args;
                       args.group = memory_->group();
                       args.data = {rig_.in(), rig_.plan().dtype};
                       args.n = n;
                       args.two_shot = two_shot;
                       gpu_peer_sum(args, rig_.stream().gpu());
                     }});
}

std::vector<std::string> LinkSums::ways() const {
  std::vector<std::string> names;
  for (const Way& way : ways_) names.push_back(way.name);
  return names;
}

// Once outside, since NCCL connects ranks at the first; once in a graph of its own, whose sum is
// compared; then in chains.
double LinkSums::graph_us(const Way& way, size_t bytes, size_t& n_wrong) {
  const kernels::CudaStream stream = rig_.stream().gpu();
  const size_t n = bytes / dtype_bytes(rig_.plan().dtype);
  way.sum(n);
  rig_.settle();
  const kernels::GpuGraph one(stream, [&] { way.sum(n); });
  const kernels::GpuGraph chain(stream, [&] {
    for (size_t i = 0; i < kChain; ++i) way.sum(n);
  });
  rig_.fill(rig_.in(), n, 0, rig_.rank());
  one.launch(stream);
  rig_.settle();
  n_wrong += rig_.total(rig_.count_wrong(rig_.in(), n, 0, 0, rig_.size()));
  kernels::clear_bytes(rig_.in(), bytes, stream);
  kernels::GpuEvent begin(true), end(true);
  const auto replay_ms = [&](size_t n_replays) {
    rig_.meet();
    begin.record(stream);
    for (size_t i = 0; i < n_replays; ++i) chain.launch(stream);
    end.record(stream);
    rig_.settle();
    return end.ms_since(begin);
  };
  const double once_ms = std::max(replay_ms(1), 1e-3);
  size_t n_replays = std::clamp(static_cast<size_t>(rig_.plan().seconds * 1e3 / once_ms), size_t{1},
                                kReplays);  // ranks that share a GPU wait for time slices
  rig_.host().broadcast(&n_replays, sizeof n_replays, 0, rig_.stream());
  return rig_.average(replay_ms(n_replays) * 1e3 / static_cast<double>(kChain * n_replays));
}

SumRow LinkSums::measure(size_t bytes) {
  SumRow row;
  row.bytes = bytes;
  const size_t n = bytes / dtype_bytes(rig_.plan().dtype);
  for (const Way& way : ways_) {
    if (bytes > way.most_bytes) {
      row.us.push_back(std::numeric_limits<double>::quiet_NaN());
    } else if (rig_.on_gpu()) {
      row.us.push_back(graph_us(way, bytes, row.n_wrong));
    } else {
      rig_.fill(rig_.in(), n, 0, rig_.rank());
      way.sum(n);
      row.n_wrong += rig_.total(rig_.count_wrong(rig_.in(), n, 0, 0, rig_.size()));
      row.us.push_back(rig_.average(rig_.time([&] { way.sum(n); }, bytes).us));
    }
  }
  return row;
}

void LinkSums::close() {
  rig_.settle();
  if (nccl_ != nullptr) nccl_->close();
  if (memory_ != nullptr) memory_->close(rig_.host(), rig_.stream());
}

}  // namespace weft::launch
