// Errors carry a sentence and the status that the process ends with.
#include "runtime/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace weft {
namespace {

TEST(Error, InputAndRunErrorsDifferInStatus) {
  const Error input = input_error("tp {} does not divide n_kv_heads {}", 3, 8);
  EXPECT_STREQ(input.what(), "tp 3 does not divide n_kv_heads 8");
  EXPECT_EQ(input.status(), 2);
  EXPECT_EQ(run_error("rank {} died", 1).status(), 1);
}

TEST(Error, SystemErrorsEndInTheSystemsWords) {
  const Error error = system_error("cannot open model.safetensors", ENOENT);
  EXPECT_STREQ(error.what(), "cannot open model.safetensors: No such file or directory");
  EXPECT_EQ(error.status(), 1);
}

TEST(Expect, NamesTheConditionAndThePlace) {
  int evaluations = 0;
  WEFT_EXPECT(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
  try {
    WEFT_EXPECT(evaluations == 2);
    FAIL() << "a broken promise went unnoticed";
  } catch (const std::logic_error& broken_promise) {
    const std::string text = broken_promise.what();
    EXPECT_NE(text.find("evaluations == 2"), std::string::npos) << text;
    EXPECT_NE(text.find("error_test.cpp:"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace weft
