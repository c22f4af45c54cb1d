// What a job that was asked to end leaves behind.
#pragma once

#include <span>
#include <string>

#include "launch/completion.h"

namespace weft::launch {

// "ended by SIGTERM: 2 of 5 prompts done, 1 cut short, 2 not begun"; empty where all are done.
std::string drain_report(std::span<const Completion> completions, int signal_number);

}  // namespace weft::launch
