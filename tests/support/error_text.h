// The text of the weft::Error that f throws; a test failure where it throws none.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"

namespace weft::test {

template <class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace weft::test

// EXPECT_ERROR(read(x), "text", "another"): throws Error with all of these texts in it.
#define EXPECT_ERROR(statement, ...)                                                    \
  do {                                                                                  \
    const std::string text_of_error = ::weft::test::error_text([&] { statement; });     \
    for (const char* part : {__VA_ARGS__})                                              \
      EXPECT_NE(text_of_error.find(part), std::string::npos) << part << " is not in:\n" \
                                                             << text_of_error;          \
  } while (false)
