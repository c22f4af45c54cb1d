// What a group of stages that holds the whole model can't beat, in one phase: lower bounds of Σ and
// max over its stages, each with the edge that follows. Placement over nodes is left out, so every
// bound is admissible.
#pragma once

#include <vector>

#include "planner/layer_rows.h"
#include "planner/stage_tables.h"

namespace weft::planner {

struct PhaseBound {
  double sum = 0;
  double most = 0;
};

// The best time of a stage by width, over classes and expert shares; kNever where it doesn't fit.
class GroupBounds {
 public:
  // After the group's last stage: nothing, or the hand-over to the decode group.
  enum class Tail { none, handover };
  GroupBounds(const Space& space, const TimeTable& table, const Capacities& capacities, Tail tail);
  GroupBounds(const GroupBounds&) = delete;  // rows_ are views
  GroupBounds& operator=(const GroupBounds&) = delete;

  // Of `n_stages` stages on `gpus` GPUs, in some microseconds: Σ over the widths that the GPUs
  // allow, max by the linear relaxation of how many layers the stages cover within a time.
  PhaseBound least(size_t n_stages, size_t gpus) const;
  // Whether memory could hold all layers.
  bool covers(size_t n_stages, size_t gpus) const;

  size_t n_layers() const { return n_layers_; }
  const std::vector<size_t>& widths() const { return widths_; }
  const double* times(size_t width, size_t ends) const {
    return &times_[(width * kEnds + ends) * (n_layers_ + 1)];
  }
  const LayerRow& row(size_t width, size_t ends) const { return rows_[width * kEnds + ends]; }

 private:
  const double* any(size_t width) const { return &any_[width * (n_layers_ + 1)]; }
  double covered(size_t n_stages, size_t gpus, double within) const;
  double least_most(size_t n_stages, size_t gpus) const;
  PhaseBound find_least(size_t n_stages, size_t gpus) const;
  const std::vector<double>& sums(size_t n_widths) const;

  size_t n_layers_;
  size_t most_stages_;
  std::vector<size_t> widths_;
  std::vector<double> times_;   // [width][ends][n_layers + 1]
  std::vector<LayerRow> rows_;  // [width][ends], views of times_
  std::vector<double> any_;     // [width][n_layers + 1]: the least over ends but kWhole
  std::vector<double> values_;  // of any_, ascending: what a max can be
  mutable std::vector<std::vector<double>> sums_;  // [widths allowed][stages], made when asked for
  mutable std::vector<std::vector<PhaseBound>> known_;  // [stages][gpus]; a negative sum: not yet
};

// The same by dynamic programming over stages, GPUs and layers: tighter and dearer. Stages are
// placed from the last to the first, so what remains are the first k of them.
class PrefixBounds {
 public:
  // `any_start`: the group's own budget is not known yet, so all smaller ones are asked for too.
  PrefixBounds(const GroupBounds& bounds, size_t n_stages, size_t gpus, bool any_start);

  // The first k stages with so many layers on at most so many GPUs; k may be all of them.
  PhaseBound rest(size_t k, size_t gpus, size_t layers) const;

 private:
  struct Level {
    size_t least_gpus = 0, most_gpus = 0;
    std::vector<double> sum, most;  // [gpus - least_gpus][n_layers + 1]
  };
  void add_level(const GroupBounds& bounds, size_t k, size_t n_stages);
  void fill(const GroupBounds& bounds, size_t k, size_t ends, size_t gpus, double* sum,
            double* most) const;

  size_t n_layers_;
  size_t narrowest_, widest_;
  size_t gpus_;
  bool any_start_;
  std::vector<Level> levels_;  // [k]; 0 is empty
};

}  // namespace weft::planner
