// Best first: every combination of replicas, stages and schedule is bounded from below; those that
// could still beat the best are searched exactly, the most promising first, until none is left that
// could.
#pragma once

#include <map>
#include <vector>

#include "planner/chain_search.h"

namespace weft::planner {

struct BestFirstOptions {
  bool separate_groups = false;
  size_t max_work = 0;  // labels to expand at most; 0 = no bound
};

class BestFirst {
 public:
  BestFirst(const Space& space, StageTables& tables, const Scorer& scorer,
            const BestFirstOptions& options)
      : space_(space),
        tables_(tables),
        scorer_(scorer),
        options_(options),
        chains_(space, tables, scorer, options.max_work) {}

  // Puts the optimum into `best` unless it is there already; it may be empty (its score kNever).
  void run(Best& best);

  bool proved() const { return proved_; }
  double gap() const { return gap_; }  // 0 where proved
  size_t n_bounds() const { return n_bounds_; }
  size_t most_batch() const { return most_batch_; }  // for which some layout has memory
  ChainSearch& chains() { return chains_; }

 private:
  // Numbers of replicas that leave a replica the same number of GPUs at most.
  struct ReplicaRange {
    size_t most = 1, least = 1;
    size_t gpus = 1;  // of a replica, at most
  };
  // What is bounded as a whole: all layouts of so many replicas, stages and GPUs, one schedule.
  struct Item {
    Score bound;
    ReplicaRange replicas;
    ChainItem chain;
  };
  struct Sizes {
    size_t batch = 0;    // whose KV has room; 0 = of a group that only prefills
    size_t size = 0;     // of a chunk, or of a batch in flight
    size_t at_work = 1;  // stages
    auto operator<=>(const Sizes&) const = default;
  };

  std::vector<ReplicaRange> replica_ranges() const;
  void bound_range(const ReplicaRange& range, const Best& best);
  void bound_stages(const ReplicaRange& range, size_t n_prefill, size_t n_stages, const Best& best);
  void bound_joint(Item& item, const Best& best);
  void bound_separate(Item& item, size_t least, size_t most, const Best& best);
  Score bound(const Item& item);
  Score bound_with(const Item& item, const ChainItem& chain, size_t replica_gpus);
  const GroupBounds& prefill_bounds(const Sizes& sizes);
  const GroupBounds& decode_bounds(const Sizes& sizes);
  bool expand(const Item& item, Best& best);
  void give_up(const Score& bound, const Best& best);

  const Space& space_;
  StageTables& tables_;
  const Scorer& scorer_;
  BestFirstOptions options_;
  ChainSearch chains_;
  std::map<Sizes, GroupBounds> prefill_bounds_, decode_bounds_;
  std::vector<Item> items_;
  size_t n_bounds_ = 0;
  size_t most_batch_ = 0;
  bool proved_ = true;
  double gap_ = 0;
};

}  // namespace weft::planner
