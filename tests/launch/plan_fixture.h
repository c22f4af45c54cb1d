// `weft plan` as a user calls it, in a folder of the test's own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace weft::launch {

struct Outcome {
  std::string out;
  std::string err;
  std::string error;  // of an Error, or of the parser
  int status = 0;
};

class PlanCommandTest : public ::testing::Test {
 protected:
  PlanCommandTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("weft-plan-{}-{}", getpid(),
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~PlanCommandTest() override { std::filesystem::remove_all(folder_); }

  static std::string model(const std::string& name) {
    return std::string(WEFT_SOURCE_DIR) + "/configs/models/" + name + ".yaml";
  }
  std::string file(const std::string& name) const { return folder_ / name; }
  size_t n_files() const {
    const std::filesystem::directory_iterator files(folder_);
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }

  // The last of `words` first, as CLI11 takes them.
  static Outcome plan(std::vector<std::string> words) {
    CLI::App app;
    add_plan_command(app);
    words.insert(words.begin(), "plan");
    std::reverse(words.begin(), words.end());
    Outcome outcome;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    try {
      app.parse(words);
    } catch (const std::exception& error) {
      outcome.error = error.what();
      const auto* refusal = dynamic_cast<const Error*>(&error);
      outcome.status = refusal ? refusal->status() : 2;  // the parser's are bad input too
    }
    outcome.out = ::testing::internal::GetCapturedStdout();
    outcome.err = ::testing::internal::GetCapturedStderr();
    return outcome;
  }

  // That this fails, saying `part`, with nothing on standard output and no file made.
  void expect_refused(std::vector<std::string> words, const std::string& part) {
    words.insert(words.end(), {"-o", file("plan.yaml")});
    const size_t before = n_files();
    const Outcome outcome = plan(words);
    EXPECT_NE(outcome.error.find(part), std::string::npos)
        << "got: " << outcome.error << "\nwants: " << part;
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(n_files(), before);
  }

  std::filesystem::path folder_;
};

}  // namespace weft::launch
