// One exception type for everything a user can act on: what went wrong, the values, what to do.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// A failure that is the user's or the environment's, not a bug. `status` is the process's exit
// status: 2 for bad input (arguments, files), 1 for a failure while running.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, int status = 2)
      : std::runtime_error(what), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// throw input_error("tp {} does not divide n_kv_heads {}", tp, n_kv_heads);
template <class... Args>
Error input_error(fmt::format_string<Args...> form, Args&&... args) {
  return Error(fmt::format(form, std::forward<Args>(args)...), 2);
}

template <class... Args>
Error run_error(fmt::format_string<Args...> form, Args&&... args) {
  return Error(fmt::format(form, std::forward<Args>(args)...), 1);
}

// run_error with errno's text appended: "cannot open x: No such file or directory".
Error system_error(std::string_view what, int errno_value);

// A broken promise inside weft: the text names the place. Throws std::logic_error.
[[noreturn]] void broken(const char* condition, const char* file, int line);
#define WEFT_EXPECT(condition) \
  ((condition) ? (void)0 : ::weft::broken(#condition, __FILE__, __LINE__))

}  // namespace weft
