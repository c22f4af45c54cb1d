// Pairs of ranks, one at a time while the others wait: rates one way and both ways, latency.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/links_report.h"
#include "launch/links_rig.h"
#include "parallel/peer_map.h"

namespace weft::launch {

class LinkPairs {
 public:
  // A collective. On GPUs of one host each rank's buffer is mapped by the others, where that can
  // be.
  explicit LinkPairs(LinkRig& rig);

  // Why there are no copies between GPUs; empty where there are, and on CPUs.
  const std::string& no_copies() const { return no_copies_; }
  // "copy engine", "kernel" where there are mapped buffers; then what the group talks through.
  std::vector<std::string> ways() const;

  // Every pair by way `index` of ways(). A collective; every rank gets the same.
  PairWay measure(size_t index, size_t latency_bytes, size_t rate_bytes);
  // One way only, from each rank to the next, by the first way: for a peak to stand beside.
  PairWay measure_ring(size_t rate_bytes);

  void close();

 private:
  enum class Way { copy_engine, kernel, group };
  struct Found;

  Way way_of(size_t index) const;
  std::string name_of(Way way) const;
  bool reaches(Way way, int a, int b) const;
  void enqueue_copy(Way way, int to, size_t bytes);
  double copy_us(Way way, int to, size_t bytes, bool both);
  double group_us(int peer, size_t bytes, bool sends, bool receives);
  double group_latency_us(int peer, size_t bytes, bool first);
  size_t agree_on_calls(int peer, bool decides, double one_us);
  void one_way(Way way, int from, int to, size_t bytes, Found& found);
  void two_way(Way way, int a, int b, size_t bytes, Found& found);
  void latency(Way way, int from, int to, size_t bytes, Found& found);
  PairWay gathered(Way way, const Found& mine);

  LinkRig& rig_;
  std::unique_ptr<parallel::PeerMap> map_;
  std::string no_copies_;
  size_t n_sent_ = 0;  // messages of this rank since one_way() began
};

}  // namespace weft::launch
