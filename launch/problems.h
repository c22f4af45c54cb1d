// Collects what is wrong, so that a user hears all of it at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/problem_list.h"
#include "runtime/base/error.h"

namespace weft::launch {

class Problems {
 public:
  // Runs a check; the Error that it throws becomes a problem. True where it passed.
  template <class F>
  bool passes(F&& check) {
    try {
      check();
      return true;
    } catch (const Error& error) {
      found_.push_back(error.what());
      return false;
    }
  }
  void add(std::string problem) { found_.push_back(std::move(problem)); }
  const std::vector<std::string>& found() const { return found_; }
  // Throws them as one Error where there are any.
  void refuse(std::string_view where) const { planner::refuse(where, found_); }

 private:
  std::vector<std::string> found_;
};

}  // namespace weft::launch
