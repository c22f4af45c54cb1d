// Counts completions by how far they came.
#include "launch/drain_report.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <algorithm>

namespace weft::launch {

std::string drain_report(std::span<const Completion> completions, int signal_number) {
  const auto cancelled = [](const Completion& one) {
    return one.finish == runtime::FinishReason::cancelled;
  };
  const auto not_begun = [&](const Completion& one) { return cancelled(one) && one.ids.empty(); };
  const auto n_cancelled = std::count_if(completions.begin(), completions.end(), cancelled);
  const auto n_not_begun = std::count_if(completions.begin(), completions.end(), not_begun);
  if (n_cancelled == 0) return {};
  const char* name = sigabbrev_np(signal_number);
  return fmt::format("ended early by SIG{}: of {} prompts {} done, {} cut short, {} not begun",
                     name == nullptr ? "?" : name, completions.size(),
                     completions.size() - static_cast<size_t>(n_cancelled),
                     n_cancelled - n_not_begun, n_not_begun);
}

}  // namespace weft::launch
