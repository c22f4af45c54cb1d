// Lower bounds of a group of stages.
#include "planner/group_bounds.h"

#include <algorithm>

namespace weft::planner {
GroupBounds::GroupBounds(const Space& space, const TimeTable& table, const Capacities& capacities,
                         Tail tail)
    : n_layers_(space.n_layers), most_stages_(space.most_stages), widths_(space.widths) {
  times_.assign(widths_.size() * kEnds * (n_layers_ + 1), kNever);
  any_.assign(widths_.size() * (n_layers_ + 1), kNever);
  sums_.resize(widths_.size() + 1);
  known_.resize(most_stages_ + 1);
  for (size_t k = 0; k < space.kinds.size(); ++k) {
    const Kind& kind = space.kinds[k];
    const double edge = table.least_edge(kind);
    const auto after = [&](size_t ends, size_t n) {
      if (!(ends & kLast)) return edge;
      return tail == Tail::handover ? table.least_handover(kind, n) : 0.0;
    };
    for (size_t ends = 0; ends < kEnds; ++ends) {
      const double* from = table.stage(k, ends);
      double* to = &times_[(kind.width * kEnds + ends) * (n_layers_ + 1)];
      const size_t first = ends == kWhole ? n_layers_ : 1;
      for (size_t n = first; n <= capacities[k * kEnds + ends]; ++n)
        to[n] = std::min(to[n], from[n] + after(ends, n));
    }
  }
  for (size_t w = 0; w < widths_.size(); ++w) {
    for (size_t ends = 0; ends < kEnds; ++ends)
      rows_.push_back(layer_row(times(w, ends), n_layers_));
    for (size_t n = 1; n <= n_layers_; ++n) {
      double& least = any_[w * (n_layers_ + 1) + n];
      least = std::min({times(w, kMiddle)[n], times(w, kFirst)[n], times(w, kLast)[n]});
      if (least < kNever) values_.push_back(least);
    }
  }
  std::sort(values_.begin(), values_.end());
  values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
}

// Most layers that the stages can hold, each within that time: the better of every mix of two
// widths, in fractions of stages (a linear programme with two constraints has such an optimum).
double GroupBounds::covered(size_t n_stages, size_t gpus, double within) const {
  const size_t widest = gpus - (n_stages - 1) * widths_.front();
  const double share = static_cast<double>(gpus) / static_cast<double>(n_stages);
  double layers[64];
  size_t n = 0;
  for (; n < widths_.size() && n < 64 && widths_[n] <= widest; ++n) {
    const double* begin = any(n) + 1;
    layers[n] = static_cast<double>(std::upper_bound(begin, begin + n_layers_, within) - begin);
  }
  double best = 0;
  for (size_t i = 0; i < n && static_cast<double>(widths_[i]) <= share; ++i) {
    best = std::max(best, layers[i]);
    for (size_t j = i + 1; j < n; ++j) {
      const double room = share - static_cast<double>(widths_[i]);
      const double part = std::min(1.0, room / static_cast<double>(widths_[j] - widths_[i]));
      best = std::max(best, layers[i] + (layers[j] - layers[i]) * part);
    }
  }
  return best * static_cast<double>(n_stages);
}

double GroupBounds::least_most(size_t n_stages, size_t gpus) const {
  const double enough = static_cast<double>(n_layers_) - 1e-6;
  const auto found = std::partition_point(values_.begin(), values_.end(), [&](double ms) {
    return covered(n_stages, gpus, ms) < enough;
  });
  return found == values_.end() ? kNever : *found;
}

bool GroupBounds::covers(size_t n_stages, size_t gpus) const {
  if (n_stages > n_layers_ || gpus < n_stages * widths_.front()) return false;
  if (n_stages == 1) return least(1, gpus).sum < kNever;
  return !values_.empty() &&
         covered(n_stages, gpus, values_.back()) >= static_cast<double>(n_layers_) - 1e-6;
}

// Σ of the whole group by number of stages, with the first n_widths widths.
const std::vector<double>& GroupBounds::sums(size_t n_widths) const {
  std::vector<double>& made = sums_[n_widths];
  if (!made.empty()) return made;
  const size_t n = n_layers_ + 1;
  const size_t most = std::min(most_stages_, n_layers_);
  made.assign(most + 1, kNever);
  std::vector<double> before(n, kNever), last(n, kNever);
  for (size_t w = 0; w < n_widths; ++w)
    for (size_t i = 1; i < n; ++i) {
      before[i] = std::min(before[i], times(w, kFirst)[i]);
      last[i] = std::min(last[i], times(w, kLast)[i]);
    }
  for (size_t k = 2; k <= most; ++k) {
    for (size_t i = 1; i < n_layers_; ++i)
      made[k] = std::min(made[k], last[i] + before[n_layers_ - i]);
    std::vector<double> now(n, kNever);
    for (size_t w = 0; w < n_widths; ++w)
      add_to_sums(row(w, kMiddle), n_layers_, before.data(), now.data());
    before.swap(now);
  }
  return made;
}

PhaseBound GroupBounds::least(size_t n_stages, size_t gpus) const {
  std::vector<PhaseBound>& known = known_[n_stages];
  const size_t useful = std::min(gpus, n_stages * widths_.back());
  if (known.size() <= useful) known.resize(useful + 1, {-1, -1});
  if (known[useful].sum < 0) known[useful] = find_least(n_stages, useful);
  return known[useful];
}

PhaseBound GroupBounds::find_least(size_t n_stages, size_t gpus) const {
  const size_t widest = gpus - (n_stages - 1) * widths_.front();
  size_t n_widths = 0;
  while (n_widths < widths_.size() && widths_[n_widths] <= widest) ++n_widths;
  if (n_stages > 1) return {sums(n_widths)[n_stages], least_most(n_stages, gpus)};
  double best = kNever;
  for (size_t w = 0; w < n_widths; ++w) best = std::min(best, times(w, kWhole)[n_layers_]);
  return {best, best};
}

PrefixBounds::PrefixBounds(const GroupBounds& bounds, size_t n_stages, size_t gpus, bool any_start)
    : n_layers_(bounds.n_layers()),
      narrowest_(bounds.widths().front()),
      widest_(bounds.widths().back()),
      gpus_(gpus),
      any_start_(any_start),
      levels_(1) {
  for (size_t k = 1; k <= n_stages; ++k) add_level(bounds, k, n_stages);
}

void PrefixBounds::add_level(const GroupBounds& bounds, size_t k, size_t n_stages) {
  const size_t after = (n_stages - k) * widest_;  // GPUs that later stages take at most
  Level& level = levels_.emplace_back();
  level.most_gpus = std::min(gpus_, k * widest_);
  level.least_gpus = std::max(k * narrowest_, !any_start_ && gpus_ > after ? gpus_ - after : 0);
  level.least_gpus = std::min(level.least_gpus, level.most_gpus);
  const size_t row = n_layers_ + 1;
  const size_t n = (level.most_gpus - level.least_gpus + 1) * row;
  level.sum.assign(n, kNever);
  level.most.assign(n, kNever);
  const size_t ends = (k == 1 ? kFirst : kMiddle) | (k == n_stages ? kLast : kMiddle);
  for (size_t gpu = level.least_gpus; gpu <= level.most_gpus; ++gpu) {
    const size_t at = (gpu - level.least_gpus) * row;
    fill(bounds, k, ends, gpu, &level.sum[at], &level.most[at]);
  }
}

void PrefixBounds::fill(const GroupBounds& bounds, size_t k, size_t ends, size_t gpus, double* sum,
                        double* most) const {
  const size_t before = (k - 1) * narrowest_;
  for (size_t w = 0; w < bounds.widths().size(); ++w) {
    const size_t width = bounds.widths()[w];
    if (width + before > gpus) break;
    const double* stage = bounds.times(w, ends);
    if (k == 1) {
      for (size_t l = 1; l <= n_layers_; ++l) sum[l] = most[l] = std::min(sum[l], stage[l]);
      continue;
    }
    const Level& level = levels_[k - 1];
    const size_t left = std::clamp(gpus - width, level.least_gpus, level.most_gpus);
    const double* sum_before = &level.sum[(left - level.least_gpus) * (n_layers_ + 1)];
    const double* most_before = &level.most[(left - level.least_gpus) * (n_layers_ + 1)];
    add_to_sums(bounds.row(w, ends), n_layers_, sum_before, sum);
    add_to_mosts(bounds.row(w, ends), n_layers_, most_before, most);
  }
}

PhaseBound PrefixBounds::rest(size_t k, size_t gpus, size_t layers) const {
  if (k == 0) return layers == 0 ? PhaseBound{0, 0} : PhaseBound{kNever, kNever};
  if (gpus < k * narrowest_) return {kNever, kNever};
  const Level& level = levels_[k];
  const size_t gpu = std::clamp(gpus, level.least_gpus, level.most_gpus);
  const size_t at = (gpu - level.least_gpus) * (n_layers_ + 1) + layers;
  return {level.sum[at], level.most[at]};
}

}  // namespace weft::planner
