#include "planner/layer_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/search.h"

namespace weft::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-12;

// Layer counts whose key may yet be the least of a window, best first.
class Candidates {
 public:
  bool empty() const { return first_ == end_; }
  size_t best() const { return layers_[first_]; }
  void drop_below(size_t least) {
    while (!empty() && layers_[first_] < least) ++first_;
  }
  void add(size_t layers, double key) {
    while (!empty() && keys_[end_ - 1] >= key) --end_;
    layers_[end_] = layers;
    keys_[end_++] = key;
  }

 private:
  size_t first_ = 0, end_ = 0;
  size_t layers_[kMostSearchLayers + 1];
  double keys_[kMostSearchLayers + 1];
};

// The loop runs over several layers at once.
void add_stage_sum(double ms, size_t n, size_t n_layers, const double* __restrict before,
                   double* __restrict sum) {
  for (size_t l = n + 1; l <= n_layers; ++l) {
    const double made = ms + before[l - n];
    sum[l] = made < sum[l] ? made : sum[l];
  }
}

}  // namespace

LayerRow layer_row(const double* ms, size_t n_layers) {
  LayerRow row;
  row.ms = ms;
  while (row.most < n_layers && ms[row.most + 1] < kNever) ++row.most;
  if (row.most < 2) {
    row.layer_ms = 0;
    return row;
  }
  const double layer_ms = (ms[row.most] - ms[1]) / static_cast<double>(row.most - 1);
  for (size_t n = 2; n < row.most; ++n)
    if (std::abs(ms[1] + static_cast<double>(n - 1) * layer_ms - ms[n]) > kRounding * ms[n])
      return row;
  row.layer_ms = layer_ms;
  return row;
}

// Of an affine row, stage(n) + before[j] = constant(l) + (before[j] - j * layer_ms) with j = l - n.
void add_to_sums(const LayerRow& stage, size_t n_layers, const double* before, double* sum) {
  if (stage.layer_ms < 0) {
    for (size_t n = 1; n <= stage.most; ++n) add_stage_sum(stage.ms[n], n, n_layers, before, sum);
    return;
  }
  Candidates candidates;
  for (size_t l = 2; l <= n_layers; ++l) {
    const size_t latest = l - 1;
    if (before[latest] < kNever)
      candidates.add(latest, before[latest] - static_cast<double>(latest) * stage.layer_ms);
    candidates.drop_below(l > stage.most ? l - stage.most : 1);
    if (candidates.empty()) continue;
    sum[l] = std::min(sum[l], stage.ms[l - candidates.best()] + before[candidates.best()]);
  }
}

// The stage's time rises with n and that of the others falls: the least maximum is where they meet,
// and where they meet never goes back as l grows.
void add_to_mosts(const LayerRow& stage, size_t n_layers, const double* before, double* most) {
  size_t first = 1;  // layers before, at least
  while (first < n_layers && !(before[first] < kNever)) ++first;
  size_t meet = 1;  // the least n at which the stage takes as long as what is before
  for (size_t l = first + 1; l <= n_layers; ++l) {
    const size_t last = std::min(stage.most, l - first);
    while (meet < last && stage.ms[meet] < before[l - meet]) ++meet;
    for (size_t n = meet > 1 ? meet - 1 : 1; n <= std::min(meet, last); ++n)
      most[l] = std::min(most[l], std::max(stage.ms[n], before[l - n]));
  }
}

}  // namespace weft::planner
