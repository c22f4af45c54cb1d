#include "launch/scale_layouts.h"

#include <fmt/format.h>

#include <algorithm>

#include "launch/problems.h"
#include "planner/shard_shapes.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

bool is_same(const StageLayouts& a, const StageLayouts& b) {
  return layout_text(a) == layout_text(b);
}

void add(std::vector<StageLayouts>& all, const StageLayouts& layout) {
  const auto same = [&](const StageLayouts& known) { return is_same(known, layout); };
  if (std::none_of(all.begin(), all.end(), same)) all.push_back(layout);
}

void add_all(const planner::ModelSpec& spec, size_t n_job_ranks, std::vector<StageLayouts>& all) {
  for (size_t n = 1; n <= n_job_ranks; ++n) {
    if (n_job_ranks % n != 0) continue;
    for (size_t tp = n; tp >= 1; --tp)
      if (n % tp == 0 && n / tp <= spec.n_layers && planner::tp_problem(spec, tp, true).empty())
        add(all, planner::balanced_layout(spec, tp, n / tp));
  }
}

void check(const StageLayouts& layout, const planner::ModelSpec& spec, size_t n_job_ranks) {
  Problems problems;
  size_t n_layers = 0;
  for (const planner::StageLayout& stage : layout) {
    n_layers += stage.n_layers;
    const std::string problem = planner::tp_problem(spec, stage.tp, true);
    if (!problem.empty()) problems.add(problem);
  }
  if (n_layers != spec.n_layers)
    problems.add(fmt::format("its stages have {} layers, the model {}", n_layers, spec.n_layers));
  if (n_ranks(layout) > n_job_ranks)
    problems.add(fmt::format("it needs {} ranks and the job has {}: start it with mpirun -n {}",
                             n_ranks(layout), n_job_ranks, n_ranks(layout)));
  problems.refuse("layout " + layout_text(layout));
}

}  // namespace

std::string layout_text(const StageLayouts& layout) {
  std::string text;
  for (const planner::StageLayout& stage : layout)
    text += fmt::format("{}{}x{}", text.empty() ? "" : ",", stage.n_layers, stage.tp);
  return text;
}

size_t n_ranks(const StageLayouts& layout) {
  size_t n = 0;
  for (const planner::StageLayout& stage : layout) n += stage.tp;
  return n;
}

std::vector<StageLayouts> scale_layouts(const std::string& list, const planner::ModelSpec& spec,
                                        size_t n_job_ranks) {
  Problems problems;
  std::vector<StageLayouts> all = {{{spec.n_layers, 1}}};
  bool any = false;
  for (const std::string& word : split(list, ' ')) {
    if (word.empty()) continue;
    any = true;
    if (word == "all") {
      add_all(spec, n_job_ranks, all);
      continue;
    }
    problems.passes([&] {
      const StageLayouts layout = planner::parse_layout(word);
      check(layout, spec, n_job_ranks);
      add(all, layout);
    });
  }
  if (!any) problems.add("--layouts names none: give all, or some, as in \"3x2,3x2 6x2\"");
  problems.refuse("can't measure these layouts");
  std::stable_sort(all.begin(), all.end(), [](const StageLayouts& a, const StageLayouts& b) {
    return n_ranks(a) < n_ranks(b);
  });
  return all;
}

}  // namespace weft::launch
