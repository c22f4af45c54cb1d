// NCCL's loading, start, failures and end, against a library that only pretends to be it.
#include "parallel/nccl_handle.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/base/error.h"
#include "tests/parallel/fake_nccl.h"

namespace weft::parallel {
namespace {

// The text of the Error that f throws.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class NcclHandleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(WEFT_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    ASSERT_NE(library, nullptr) << dlerror();
    fake_ = static_cast<FakeNccl*>(dlsym(library, "fake_nccl"));
    ASSERT_NE(fake_, nullptr);
    fake_->reset();
  }

  FakeNccl* fake_ = nullptr;
};

TEST(NcclVersion, ReadsBothSpellings) {
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
  EXPECT_EQ(nccl_version_text(2804), "2.8.4");
  EXPECT_EQ(nccl_version_text(20906), "2.9.6");
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(23007), "2.30.7");
}

TEST(NcclLibraryTest, SaysWhatIsMissing) {
  const std::string text = error_of([] { NcclLibrary library("libno_such_nccl.so.2"); });
  EXPECT_TRUE(holds(text, "libno_such_nccl.so.2")) << text;
  EXPECT_TRUE(holds(text, "install NCCL 2.28.0 or newer")) << text;
}

TEST(NcclLibraryTest, SaysThatALibraryIsNotNccl) {
  const std::string text = error_of([] { NcclLibrary library("libc.so.6"); });
  EXPECT_TRUE(holds(text, "libc.so.6 has no ncclGetVersion")) << text;
}

TEST_F(NcclHandleTest, RefusesAnOldLibrary) {
  fake_->version = 22703;
  const std::string text = error_of([] { NcclLibrary library(WEFT_FAKE_NCCL); });
  EXPECT_TRUE(holds(text, "is NCCL 2.27.3; weft needs 2.28.0 or newer")) << text;
}

TEST_F(NcclHandleTest, TurnsSwitchSumsOffUnlessTheUserHasSpoken) {
  unsetenv("NCCL_NVLS_ENABLE");
  const NcclLibrary first(WEFT_FAKE_NCCL);
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  setenv("NCCL_NVLS_ENABLE", "2", 1);
  const NcclLibrary second(WEFT_FAKE_NCCL);
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "2");
  unsetenv("NCCL_NVLS_ENABLE");
}

TEST_F(NcclHandleTest, StartsWithoutBlockingAndEndsInOrder) {
  const NcclLibrary library(WEFT_FAKE_NCCL);
  NcclHandle handle(library, {}, 0, 2, 10);
  EXPECT_FALSE(fake_->blocking);
  ASSERT_NE(handle.get(), nullptr);
  handle.poll();
  handle.settle(
      library.all_reduce(nullptr, nullptr, 1, kNcclFloat32, kNcclSum, handle.get(), nullptr),
      "ncclAllReduce");
  handle.close();
  EXPECT_EQ(handle.get(), nullptr);
  EXPECT_EQ(fake_->n_finalized, 1);
  EXPECT_EQ(fake_->n_destroyed, 1);
  EXPECT_EQ(fake_->n_aborted, 0);
}

TEST_F(NcclHandleTest, AbortsAStartThatTakesTooLong) {
  const NcclLibrary library(WEFT_FAKE_NCCL);
  fake_->never_ready = true;
  const std::string text = error_of([&] { NcclHandle handle(library, {}, 0, 2, 0.05); });
  EXPECT_TRUE(holds(text, "ncclCommInitRankConfig did not complete within 0.05 s")) << text;
  EXPECT_EQ(fake_->n_aborted, 1);
  EXPECT_EQ(fake_->n_destroyed, 0);
}

TEST_F(NcclHandleTest, AbortsAfterAnAsynchronousError) {
  const NcclLibrary library(WEFT_FAKE_NCCL);
  NcclHandle handle(library, {}, 1, 2, 10);
  fake_->async_error = 6;
  const std::string text = error_of([&] { handle.poll(); });
  EXPECT_TRUE(holds(text, "remote error: the cable is out")) << text;
  EXPECT_EQ(fake_->n_aborted, 1);
  EXPECT_EQ(fake_->n_destroyed, 0);
  EXPECT_THROW(handle.poll(), Error) << "it has ended";
  EXPECT_EQ(fake_->n_aborted, 1);
}

TEST_F(NcclHandleTest, AbortsAfterACallThatFails) {
  const NcclLibrary library(WEFT_FAKE_NCCL);
  NcclHandle handle(library, {}, 1, 2, 10);
  fake_->call_status = 5;
  const std::string text = error_of([&] {
    handle.settle(library.all_gather(nullptr, nullptr, 1, kNcclUint8, handle.get(), nullptr),
                  "ncclAllGather");
  });
  EXPECT_TRUE(holds(text, "ncclAllGather failed: other error")) << text;
  EXPECT_EQ(fake_->n_aborted, 1);
}

TEST_F(NcclHandleTest, ClosesOnlyOnceTheGraphsAreGone) {
  const NcclLibrary library(WEFT_FAKE_NCCL);
  NcclHandle handle(library, {}, 0, 2, 0.05);
  fake_->has_graphs = true;
  const std::string text = error_of([&] { handle.close(); });
  EXPECT_TRUE(holds(text, "ncclCommFinalize did not complete within 0.05 s")) << text;
  EXPECT_EQ(fake_->n_destroyed, 0);
  fake_->has_graphs = false;
}

TEST_F(NcclHandleTest, AnAbortDoesNotWaitForGraphs) {
  const NcclLibrary library(WEFT_FAKE_NCCL);
  NcclHandle handle(library, {}, 1, 2, 10);
  fake_->has_graphs = true;
  fake_->async_error = 6;
  const std::string text = error_of([&] { handle.poll(); });
  EXPECT_TRUE(holds(text, "remote error: the cable is out")) << text;
  EXPECT_EQ(fake_->n_aborted, 1);
  EXPECT_EQ(handle.get(), nullptr);
  fake_->has_graphs = false;  // lets its thread end
}

TEST_F(NcclHandleTest, AbortsWhatWasNotClosed) {
  const NcclLibrary library(WEFT_FAKE_NCCL);
  { NcclHandle handle(library, {}, 0, 1, 10); }
  EXPECT_EQ(fake_->n_aborted, 1);
  EXPECT_EQ(fake_->n_finalized, 0);
}

}  // namespace
}  // namespace weft::parallel
