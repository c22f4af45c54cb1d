// Models that planner tests share, and a check that an Error says what it should.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "planner/model_spec.h"
#include "runtime/base/error.h"
#include "tests/support/small_model.h"

namespace weft::planner {

inline ModelSpec model(const std::string& name) {
  return read_model_yaml(std::string(WEFT_SOURCE_DIR) + "/configs/models/" + name + ".yaml");
}

inline ModelSpec small_spec() { return test::six_layer_model(); }

// The text of the Error that f throws; a failure and "" where it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

inline ::testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "got: " << text << "\nwants: " << part;
}
#define EXPECT_SAYS(text, part) EXPECT_TRUE(::weft::planner::says(text, part))

}  // namespace weft::planner
