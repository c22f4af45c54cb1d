// Logging to stderr.
#include "runtime/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

namespace weft {

void start_logging(int rank, bool verbose) {
  const std::string name = rank < 0 ? "weft" : fmt::format("weft[rank {}]", rank);
  auto logger =
      std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%n: %^%l%$: %v");
  const auto quiet = rank > 0 ? spdlog::level::warn : spdlog::level::info;
  logger->set_level(verbose ? spdlog::level::debug : quiet);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace weft
