// The exact part of the search: for one number of replicas, one schedule and one number of stages,
// dynamic programming over (layers placed, kind of the latest stage, GPUs used in its node, nodes
// left by class) with Pareto sets of times, GPUs and traffic, cut by the bounds of what remains.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "planner/node_room.h"
#include "planner/search_score.h"

namespace weft::planner {

struct ChainItem {
  size_t n_replicas = 1;
  size_t n_prefill = 0;  // stages that only prefill; 0 = one group does both
  size_t n_stages = 1;   // the others
  Schedule schedule;
  size_t prefill_gpus = 0;  // at most; of one replica
  size_t decode_gpus = 0;   // at most, of the other stages
};

struct Best {
  Score score;
  Layout layout;
};

class ChainSearch {
 public:
  // Expands at most `max_work` labels in its life; 0 = no bound.
  ChainSearch(const Space& space, StageTables& tables, const Scorer& scorer, size_t max_work)
      : space_(space), tables_(tables), scorer_(scorer), max_work_(max_work) {}

  // Puts a better layout of this item into `best`, if there is one. With `only_width` all stages
  // have that index in Space::widths. False where the work's bound came first.
  bool run(const ChainItem& item, Best& best, std::optional<size_t> only_width = std::nullopt);

  size_t n_expanded() const { return n_expanded_; }

 private:
  enum Time { kPrefillSum, kPrefillMost, kDecodeSum, kDecodeMost, kTimes };

  // A chain of stages from the last back to the latest placed one.
  struct Label {
    double ms[kTimes] = {0, 0, 0, 0};
    double traffic = 0;
    uint32_t gpus = 0;        // of one replica
    uint32_t group_gpus = 0;  // of the group being placed
    uint32_t nodes_left = 0;  // index in budgets_
    uint32_t room = 0;        // GPUs that the stages still to place can have
    uint32_t parent = 0;      // in the frontier before
    uint16_t layers_left = 0;
    uint16_t kind = 0;
    uint16_t used = 0;  // GPUs of the node that the latest stages share
    uint16_t n_layers = 0;
    bool same_node = false;  // with the stage placed before, which follows it in the model
  };

  // One position of the chain.
  struct Step {
    bool prefills = true, decodes = true;
    size_t ends = kMiddle;
    size_t left = 0;           // stages of this group still to place after it
    bool starts_group = true;  // nothing of this group is placed yet
  };

  void prepare(const ChainItem& item, const Best& best, std::optional<size_t> only_width);
  void make_bounds(const ChainItem& item);
  // What a PrefixBounds depends on beside the space. Capacities are told apart by their place.
  struct RestKey {
    bool decodes = false;
    size_t size = 0;  // of a chunk, or of a batch in flight
    size_t at_work = 1;
    const Capacities* capacities = nullptr;
    GroupBounds::Tail tail = GroupBounds::Tail::none;
    size_t n_stages = 1;
    size_t gpus = 1;
    bool any_start = false;
    auto operator<=>(const RestKey&) const = default;
  };
  const PrefixBounds& rest_bounds(const RestKey& key);
  void set_budget(size_t gpus, size_t least);
  bool run_budget(Best& best);
  bool find_limits(const Best& best);
  Step step_at(size_t position) const;
  void expand(const Step& step, uint32_t from, size_t kind, bool same_node, const Best& best);
  bool take_nodes(const Kind& kind, bool same_node, Label& to);
  bool add_stage(const Step& step, const Label& from, size_t kind, size_t n_layers,
                 Label& to) const;
  void lower_times(const Step& step, const Label& label, double* ms) const;
  bool promising(const Step& step, const Label& label, const Best& best) const;
  Score score(const double* ms, size_t gpus, double traffic) const;
  bool has_more_left(uint32_t a, uint32_t b) const;
  void keep_undominated();
  void take_best(Best& best) const;
  Layout layout_of(const Label& last) const;
  uint32_t budget_index(std::vector<uint32_t> budget);

  const Space& space_;
  StageTables& tables_;
  const Scorer& scorer_;
  size_t max_work_;
  size_t n_expanded_ = 0;

  // Of the item being run.
  ChainItem given_;
  ChainItem item_;  // as given, with the budget's GPUs
  std::optional<NodeRoom> room_;
  size_t most_gpus_ = 0;   // of one replica
  size_t least_gpus_ = 0;  // layouts with fewer were searched before
  std::vector<bool> allowed_;
  const TimeTable* prefill_ = nullptr;
  const TimeTable* decode_ = nullptr;
  const Capacities* prefill_capacity_ = nullptr;
  const Capacities* decode_capacity_ = nullptr;
  std::map<RestKey, PrefixBounds> rests_;  // the latest ones: items share them
  const PrefixBounds* prefill_rest_ = nullptr;
  const PrefixBounds* decode_rest_ = nullptr;
  double limits_[kTimes] = {0, 0, 0, 0};  // no time may be above, whatever the others are
  std::vector<std::vector<uint32_t>> budgets_;
  std::map<std::vector<uint32_t>, uint32_t> budget_of_;
  std::vector<std::vector<Label>> frontiers_;
  std::vector<Label> next_;
};

}  // namespace weft::planner
