#include "launch/calibrate_links.h"

#include <algorithm>
#include <array>

#include "parallel/host_communicator.h"

namespace weft::launch {
namespace {

constexpr int kPairTag = 101;  // of MPI_Comm_create_group
constexpr size_t kMostMessageBytes = size_t{4} << 20;
// What a rank computes between two messages: a stage's step, and a layer's half.
constexpr double kStageUs = 400;
constexpr double kHalfLayerUs = 60;

std::vector<size_t> message_sizes(bool quick) {
  std::vector<size_t> sizes;
  for (size_t bytes = 64; bytes <= kMostMessageBytes; bytes *= quick ? 64 : 4)
    sizes.push_back(bytes);
  return sizes;
}

}  // namespace

planner::MessageCurve time_all_reduce(const Rig& rig) {
  planner::MessageCurve curve;
  curve.bytes = message_sizes(rig.quick());
  const size_t n_calls = rig.quick() ? 20 : 100;
  std::vector<float> sums(curve.bytes.back() / 2, 0);
  for (const size_t bytes : curve.bytes) {
    const double us = rig.time_each_us(n_calls, [&] {
      compute_for_us(kHalfLayerUs);
      const RigClock::time_point start = RigClock::now();
      rig.group().all_reduce(sums.data(), bytes / 2, DType::f32, rig.stream());
      return us_since(start);
    });
    curve.microseconds.push_back(std::max(us, 0.01));
  }
  return curve;
}

planner::MessageCurve time_send_recv(const parallel::MpiSession& session, int other,
                                     kernels::Stream& stream, bool quick) {
  planner::MessageCurve curve;
  if (session.rank() != 0 && session.rank() != other) return curve;
  const std::array<int, 2> ranks = {0, other};
  const auto pair = parallel::make_host_communicator(session, ranks, kPairTag, sizeof(float));
  const bool first = session.rank() == 0;
  const int peer = first ? 1 : 0;
  curve.bytes = message_sizes(quick);
  std::vector<std::byte> buffer(curve.bytes.back());
  const size_t n_rounds = quick ? 10 : 60;
  for (const size_t bytes : curve.bytes) {
    const parallel::Transfer send{parallel::Transfer::Kind::send, peer, buffer.data(), bytes};
    const parallel::Transfer receive{parallel::Transfer::Kind::recv, peer, buffer.data(), bytes};
    std::vector<double> times;
    for (size_t i = 0; i < n_rounds; ++i) {
      const RigClock::time_point start = RigClock::now();
      if (!first) pair->exchange({&receive, 1}, stream);
      compute_for_us(kStageUs);
      pair->exchange({&send, 1}, stream);
      if (first) pair->exchange({&receive, 1}, stream);
      times.push_back(std::max((us_since(start) - 2 * kStageUs) / 2, 0.01));
    }
    double us = median(times);
    pair->broadcast(&us, sizeof(us), 0, stream);
    curve.microseconds.push_back(us);
  }
  pair->close();
  return curve;
}

std::optional<int> first_rank_elsewhere(const parallel::MpiSession& session) {
  const std::vector<int>& node_of = session.node_of();
  const auto found = std::find_if(node_of.begin(), node_of.end(),
                                  [&](int node) { return node != node_of.front(); });
  if (found == node_of.end()) return std::nullopt;
  return static_cast<int>(found - node_of.begin());
}

}  // namespace weft::launch
