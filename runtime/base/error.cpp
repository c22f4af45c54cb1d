// Texts of errors that come from the operating system or from weft itself.
#include "runtime/base/error.h"

#include <cstring>

namespace weft {

Error system_error(std::string_view what, int errno_value) {
  return run_error("{}: {}", what, std::strerror(errno_value));
}

void broken(const char* condition, const char* file, int line) {
  throw std::logic_error(fmt::format("broken promise: {} ({}:{})", condition, file, line));
}

}  // namespace weft
