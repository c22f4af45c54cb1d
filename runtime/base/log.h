// Logging to stderr; stdout belongs to data. One logger a process, named by its rank.
#pragma once

#include <spdlog/spdlog.h>

namespace weft {

// Sets spdlog's default logger to stderr with "weft[rank 3] " before each line (no rank while
// rank < 0). Ranks other than 0 say warnings and errors only, unless verbose.
void start_logging(int rank, bool verbose);

}  // namespace weft
