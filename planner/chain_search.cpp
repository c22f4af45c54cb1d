// Stages are placed from the last to the first, so that the edge after a stage is known when the
// stage is placed.
#include "planner/chain_search.h"

#include <algorithm>
#include <tuple>

namespace weft::planner {
namespace {

constexpr size_t kMostRests = 64;  // kept; of up to two MiB each

}  // namespace

// Where GPUs are the score, the budget grows one by one: small budgets have tight bounds, and the
// first that holds a layout holds the best.
bool ChainSearch::run(const ChainItem& item, Best& best, std::optional<size_t> only_width) {
  prepare(item, best, only_width);
  const size_t fewest = (item.n_prefill + item.n_stages) * space_.widths.front();
  const size_t most = most_gpus_;
  if (most < fewest) return true;
  make_bounds(item);
  const double before = best.score.value;
  for (size_t gpus = scorer_.goal() == Goal::gpus ? fewest : most; gpus <= most; ++gpus) {
    set_budget(gpus, scorer_.goal() == Goal::gpus ? gpus : fewest);
    if (find_limits(best) && !run_budget(best)) return false;
    if (scorer_.goal() == Goal::gpus && best.score.value < before) break;
  }
  return true;
}

bool ChainSearch::run_budget(Best& best) {
  Label root;
  root.layers_left = static_cast<uint16_t>(space_.n_layers);
  std::vector<uint32_t> nodes;
  for (const NodeClass& node : space_.nodes) nodes.push_back(static_cast<uint32_t>(node.count));
  root.nodes_left = budget_index(std::move(nodes));
  frontiers_.assign(1, {root});
  for (size_t position = 0; position < item_.n_prefill + item_.n_stages; ++position) {
    const Step step = step_at(position);
    next_.clear();
    const auto n_labels = static_cast<uint32_t>(frontiers_.back().size());
    for (uint32_t from = 0; from < n_labels; ++from) {
      if (max_work_ > 0 && n_expanded_ >= max_work_) return false;
      ++n_expanded_;
      for (size_t kind = 0; kind < space_.kinds.size(); ++kind) {
        if (!allowed_[kind]) continue;
        expand(step, from, kind, false, best);
        if (position > 0) expand(step, from, kind, true, best);
      }
    }
    keep_undominated();
    frontiers_.push_back(std::move(next_));
  }
  take_best(best);
  return true;
}

void ChainSearch::prepare(const ChainItem& item, const Best& best,
                          std::optional<size_t> only_width) {
  given_ = item;
  item_ = item;
  room_.emplace(space_, item.n_replicas);
  most_gpus_ = std::min(
      {space_.most_gpus / item.n_replicas, room_->gpus(), item.prefill_gpus + item.decode_gpus});
  if (scorer_.goal() == Goal::gpus && best.score.value < kNever)
    most_gpus_ = std::min(most_gpus_, static_cast<size_t>(best.score.value) / item.n_replicas);
  allowed_.assign(space_.kinds.size(), true);
  for (size_t k = 0; only_width && k < space_.kinds.size(); ++k)
    allowed_[k] = space_.kinds[k].width == *only_width;
  budgets_.clear();
  budget_of_.clear();
}

// At most `gpus` of one replica, and no layouts with fewer than `least`.
void ChainSearch::set_budget(size_t gpus, size_t least) {
  const size_t narrowest = space_.widths.front();
  most_gpus_ = gpus;
  least_gpus_ = least;
  item_.decode_gpus = std::min(given_.decode_gpus, gpus - given_.n_prefill * narrowest);
  item_.prefill_gpus = std::min(given_.prefill_gpus, gpus - given_.n_stages * narrowest);
}

void ChainSearch::make_bounds(const ChainItem& item) {
  const bool separate = item.n_prefill > 0;
  const Schedule& schedule = item.schedule;
  const size_t at_work =
      space_.stages_at_work(schedule, item.n_replicas, item.n_prefill, item.n_stages);
  prefill_ = &tables_.prefill(schedule.prefill_chunk, at_work);
  decode_ = &tables_.decode(batch_in_flight(schedule), at_work);
  decode_capacity_ = &tables_.capacities(schedule, space_.kv_floor(schedule.batch, false));
  prefill_capacity_ = &tables_.capacities(schedule, space_.kv_floor(schedule.batch, separate));
  // Where nodes differ, what is left of them may be few.
  const bool grows = scorer_.goal() == Goal::gpus || space_.nodes.size() > 1;
  set_budget(most_gpus_, 0);
  if (rests_.size() + 2 > kMostRests) rests_.clear();
  RestKey key = {
      true,          batch_in_flight(schedule), at_work, decode_capacity_, GroupBounds::Tail::none,
      item.n_stages, item_.decode_gpus,         grows};
  decode_rest_ = &rest_bounds(key);
  key.decodes = false;
  key.size = schedule.prefill_chunk;
  key.capacities = prefill_capacity_;
  if (separate) {
    key.tail = GroupBounds::Tail::handover;
    key.n_stages = item.n_prefill;
    key.gpus = item_.prefill_gpus;
    key.any_start = true;
  }
  prefill_rest_ = &rest_bounds(key);
}

const PrefixBounds& ChainSearch::rest_bounds(const RestKey& key) {
  const auto found = rests_.find(key);
  if (found != rests_.end()) return found->second;
  const TimeTable& table =
      key.decodes ? tables_.decode(key.size, key.at_work) : tables_.prefill(key.size, key.at_work);
  const GroupBounds bounds(space_, table, *key.capacities, key.tail);
  return rests_.try_emplace(key, bounds, key.n_stages, key.gpus, key.any_start).first->second;
}

ChainSearch::Step ChainSearch::step_at(size_t position) const {
  const bool separate = item_.n_prefill > 0;
  const bool in_prefill = position >= item_.n_stages;
  const size_t n_group = in_prefill ? item_.n_prefill : item_.n_stages;
  const size_t index = in_prefill ? position - item_.n_stages : position;
  Step step;
  step.prefills = !separate || in_prefill;
  step.decodes = !in_prefill;
  step.left = n_group - 1 - index;
  step.starts_group = index == 0;
  step.ends = (step.left == 0 ? kFirst : kMiddle) | (step.starts_group ? kLast : kMiddle);
  return step;
}

// For each time the largest value with which an otherwise ideal layout could still beat the best:
// cheap to compare with, before the score is asked. False where nothing could.
bool ChainSearch::find_limits(const Best& best) {
  const bool separate = item_.n_prefill > 0;
  const PhaseBound decode = decode_rest_->rest(item_.n_stages, item_.decode_gpus, space_.n_layers);
  const PhaseBound prefill =
      separate ? prefill_rest_->rest(item_.n_prefill, item_.prefill_gpus, space_.n_layers)
               : prefill_rest_->rest(item_.n_stages, item_.decode_gpus, space_.n_layers);
  const double ideal[kTimes] = {prefill.sum, prefill.most, decode.sum, decode.most};
  const size_t gpus = least_gpus_;
  const auto could = [&](size_t which, double value) {
    double ms[kTimes];
    std::copy(ideal, ideal + kTimes, ms);
    ms[which] = value;
    return may_beat(score(ms, gpus, 0), best.score);
  };
  if (!could(0, ideal[0])) return false;
  for (size_t i = 0; i < kTimes; ++i) {
    double low = ideal[i], high = std::max(2 * ideal[i], 1e-3);
    for (int doublings = 0; could(i, high) && doublings < 60; ++doublings) high *= 2;
    for (int halvings = 0; halvings < 40 && high - low > 1e-9 * high; ++halvings) {
      const double middle = low + (high - low) / 2;
      (could(i, middle) ? low : high) = middle;
    }
    limits_[i] = high;
  }
  return true;
}

Score ChainSearch::score(const double* ms, size_t gpus, double traffic) const {
  PipelineTimes times;
  times.prefill_sum_ms = ms[kPrefillSum];
  times.prefill_max_ms = ms[kPrefillMost];
  times.decode_sum_ms = ms[kDecodeSum];
  times.decode_max_ms = ms[kDecodeMost];
  times.n_stages = item_.n_stages;
  times.kv_blocks = space_.kv_floor(item_.schedule.batch, false);
  times.separate_groups = item_.n_prefill > 0;
  return scorer_.score(times, item_.schedule, item_.n_replicas, gpus * item_.n_replicas, traffic);
}

uint32_t ChainSearch::budget_index(std::vector<uint32_t> budget) {
  const auto [found, is_new] =
      budget_of_.try_emplace(budget, static_cast<uint32_t>(budgets_.size()));
  if (is_new) budgets_.push_back(std::move(budget));
  return found->second;
}

// The nodes that all replicas' copies of the stage take; false where there are not enough. A group
// over several nodes has them to itself.
bool ChainSearch::take_nodes(const Kind& kind, bool same_node, Label& to) {
  const size_t node_gpus = space_.nodes[kind.node_class].gpus;
  std::vector<uint32_t> budget = budgets_[to.nodes_left];
  uint32_t& left = budget[kind.node_class];
  size_t used = kind.gpus_in_node;
  if (same_node) {
    left += static_cast<uint32_t>(space_.nodes_taken(kind.node_class, to.used, item_.n_replicas));
    used += to.used;
  }
  const size_t taken = kind.n_nodes * space_.nodes_taken(kind.node_class, used, item_.n_replicas);
  if (taken > left) return false;
  left -= static_cast<uint32_t>(taken);
  to.nodes_left = budget_index(std::move(budget));
  to.used = static_cast<uint16_t>(kind.n_nodes > 1 ? node_gpus : used);
  return true;
}

void ChainSearch::expand(const Step& step, uint32_t from, size_t kind_index, bool same_node,
                         const Best& best) {
  const Kind& kind = space_.kinds[kind_index];
  const Label& label = frontiers_.back()[from];
  if (same_node) {
    const Kind& neighbour = space_.kinds[label.kind];
    if (neighbour.node_class != kind.node_class || kind.n_nodes > 1) return;
    if (label.used + kind.tp > space_.nodes[kind.node_class].gpus) return;
  }
  const bool separate = item_.n_prefill > 0;
  const size_t narrowest = space_.widths.front();
  const size_t group_gpus = (step.starts_group ? 0 : label.group_gpus) + kind.tp;
  const size_t group_most = step.decodes ? item_.decode_gpus : item_.prefill_gpus;
  const size_t others = separate && step.decodes ? item_.n_prefill * narrowest : 0;
  if (group_gpus + step.left * narrowest > group_most) return;
  if (label.gpus + kind.tp + step.left * narrowest + others > most_gpus_) return;
  Label base = label;
  base.parent = from;
  base.kind = static_cast<uint16_t>(kind_index);
  base.gpus += static_cast<uint32_t>(kind.tp);
  base.group_gpus = static_cast<uint32_t>(group_gpus);
  base.same_node = same_node;
  if (step.starts_group) base.layers_left = static_cast<uint16_t>(space_.n_layers);
  if (!take_nodes(kind, same_node, base)) return;
  base.room =
      static_cast<uint32_t>(room_->gpus(budgets_[base.nodes_left], kind.node_class, base.used));
  if (base.room < step.left * narrowest + others) return;
  const size_t slot = kind_index * kEnds + step.ends;
  size_t most = std::min<size_t>(base.layers_left, (*decode_capacity_)[slot]);
  if (!step.decodes) most = std::min<size_t>(base.layers_left, (*prefill_capacity_)[slot]);
  const size_t least = step.left == 0 ? base.layers_left : 1;
  most = std::min<size_t>(most, base.layers_left - std::min<size_t>(step.left, base.layers_left));
  for (size_t n = least; n <= most; ++n) {
    Label to = base;
    if (!add_stage(step, label, kind_index, n, to)) break;  // more layers take longer still
    if (promising(step, to, best)) next_.push_back(to);
  }
}

// False where the stage alone is too slow.
bool ChainSearch::add_stage(const Step& step, const Label& from, size_t kind_index, size_t n_layers,
                            Label& to) const {
  const Kind& kind = space_.kinds[kind_index];
  const bool is_last = step.starts_group && step.decodes;  // of the whole chain: no edge follows
  const bool hands_over = step.starts_group && !step.decodes;
  const bool across = !is_last && !to.same_node;
  size_t edge = 0;
  if (!is_last) edge = prefill_->edge_index(kind, space_.kinds[from.kind], across);
  const auto add = [&](const TimeTable& table, Time sum, Time most) {
    double ms = table.stage(kind_index, step.ends)[n_layers];
    if (!is_last) ms += hands_over ? table.handover(edge, n_layers) : table.edge_ms[edge];
    to.ms[sum] += ms;
    to.ms[most] = std::max(to.ms[most], ms);
    return ms <= limits_[most];
  };
  bool quick = true;
  if (step.prefills) quick &= add(*prefill_, kPrefillSum, kPrefillMost);
  if (step.decodes) quick &= add(*decode_, kDecodeSum, kDecodeMost);
  to.n_layers = static_cast<uint16_t>(n_layers);
  to.layers_left = static_cast<uint16_t>(to.layers_left - n_layers);
  const double edge_bytes = (step.prefills ? space_.prefill_edge_bytes : 0) +
                            (step.decodes ? space_.decode_edge_bytes : 0);
  if (across) to.traffic += hands_over ? space_.handover_bytes : edge_bytes;
  if (kind.n_nodes > 1)  // two all-reduces a layer, once over each pair of neighbouring nodes
    to.traffic += 2.0 * static_cast<double>(n_layers * (kind.n_nodes - 1)) * edge_bytes;
  return quick;
}

void ChainSearch::lower_times(const Step& step, const Label& label, double* ms) const {
  std::copy(label.ms, label.ms + kTimes, ms);
  const auto add = [&](const PhaseBound& rest, Time sum, Time most) {
    ms[sum] += rest.sum;
    ms[most] = std::max(ms[most], rest.most);
  };
  const bool separate = item_.n_prefill > 0;
  if (step.decodes) {
    const size_t gpus = std::min<size_t>(item_.decode_gpus - label.group_gpus, label.room);
    add(decode_rest_->rest(step.left, gpus, label.layers_left), kDecodeSum, kDecodeMost);
    if (!separate)
      add(prefill_rest_->rest(step.left, gpus, label.layers_left), kPrefillSum, kPrefillMost);
    if (!separate) return;
    const size_t decode_gpus = label.gpus + step.left * space_.widths.front();
    const size_t free =
        std::min({item_.prefill_gpus, most_gpus_ - decode_gpus, size_t{label.room}});
    add(prefill_rest_->rest(item_.n_prefill, free, space_.n_layers), kPrefillSum, kPrefillMost);
    return;
  }
  const size_t group = item_.prefill_gpus - label.group_gpus;
  const size_t gpus = std::min({group, most_gpus_ - label.gpus, size_t{label.room}});
  add(prefill_rest_->rest(step.left, gpus, label.layers_left), kPrefillSum, kPrefillMost);
}

bool ChainSearch::promising(const Step& step, const Label& label, const Best& best) const {
  double ms[kTimes];
  lower_times(step, label, ms);
  for (size_t i = 0; i < kTimes; ++i)
    if (ms[i] > limits_[i]) return false;
  size_t stages_left = step.left;
  if (item_.n_prefill > 0 && step.decodes) stages_left += item_.n_prefill;
  const size_t gpus = label.gpus + stages_left * space_.widths.front();
  return may_beat(score(ms, std::max(gpus, least_gpus_), label.traffic), best.score);
}

// In every class.
bool ChainSearch::has_more_left(uint32_t a, uint32_t b) const {
  if (a == b) return true;
  const std::vector<uint32_t>& more = budgets_[a];
  const std::vector<uint32_t>& less = budgets_[b];
  for (size_t c = 0; c < more.size(); ++c)
    if (more[c] < less[c]) return false;
  return true;
}

// Of the labels with the same future, those that no other beats or equals in everything.
void ChainSearch::keep_undominated() {
  const auto key = [&](const Label& a) {
    return std::tuple(a.layers_left, space_.kinds[a.kind].port, a.used);
  };
  const auto values = [](const Label& a) {
    return std::tuple(a.ms[0], a.ms[2], a.ms[1], a.ms[3], a.gpus, a.traffic);
  };
  std::sort(next_.begin(), next_.end(), [&](const Label& a, const Label& b) {
    return key(a) != key(b) ? key(a) < key(b) : values(a) < values(b);
  });
  const auto dominates = [&](const Label& a, const Label& b) {
    for (size_t i = 0; i < kTimes; ++i)
      if (a.ms[i] > b.ms[i]) return false;
    return a.gpus <= b.gpus && a.group_gpus <= b.group_gpus && a.traffic <= b.traffic &&
           has_more_left(a.nodes_left, b.nodes_left);
  };
  std::vector<Label> kept;
  size_t group = 0;  // where the labels of the present key begin
  for (const Label& label : next_) {
    if (!kept.empty() && key(kept.back()) != key(label)) group = kept.size();
    const bool beaten = std::any_of(kept.begin() + static_cast<ptrdiff_t>(group), kept.end(),
                                    [&](const Label& other) { return dominates(other, label); });
    if (!beaten) kept.push_back(label);
  }
  next_.swap(kept);
}

void ChainSearch::take_best(Best& best) const {
  for (const Label& label : frontiers_.back()) {
    const Score found = score(label.ms, label.gpus, label.traffic);
    if (!(found < best.score)) continue;
    best.score = found;
    best.layout = layout_of(label);
  }
}

Layout ChainSearch::layout_of(const Label& last) const {
  Layout layout;
  layout.n_replicas = item_.n_replicas;
  layout.schedule = item_.schedule;
  size_t next_layer = 0, part = 0;
  const Label* label = &last;
  for (size_t position = frontiers_.size() - 1; position > 0; --position) {
    const Step step = step_at(position - 1);
    const Kind& kind = space_.kinds[label->kind];
    PlacedStage& stage = layout.stages.emplace_back();
    if (item_.n_prefill > 0) stage.role = step.decodes ? Role::decode : Role::prefill;
    stage.layers = {next_layer, next_layer + label->n_layers};
    next_layer = step.starts_group ? 0 : stage.layers.end;
    stage.shape = space_.shape(kind, label->n_layers, step.ends & kFirst, step.ends & kLast);
    stage.part = part;
    if (!label->same_node) ++part;
    label = &frontiers_[position - 1][label->parent];
  }
  return layout;
}

}  // namespace weft::planner
