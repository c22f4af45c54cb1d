// Many reasons in one Error.
#include "planner/problem_list.h"

#include <algorithm>

namespace weft::planner {
namespace {

constexpr size_t kMostShown = 20;

}  // namespace

std::string problem_text(std::string_view where, const std::vector<std::string>& problems) {
  if (problems.size() == 1) return fmt::format("{}: {}", where, problems.front());
  std::string text = fmt::format("{}: {} problems:", where, problems.size());
  const size_t n_shown = std::min(problems.size(), kMostShown);
  for (size_t i = 0; i < n_shown; ++i) text += "\n  - " + problems[i];
  if (n_shown < problems.size()) text += fmt::format("\n  - … {} more", problems.size() - n_shown);
  return text;
}

void refuse(std::string_view where, const std::vector<std::string>& problems) {
  if (!problems.empty()) throw Error(problem_text(where, problems));
}

}  // namespace weft::planner
