// A wait for the GPU that never ends by itself, because NCCL's kernel waits for a peer that is
// gone.
#include "runtime/gpu_wait.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "parallel/nccl_handle.h"
#include "runtime/base/error.h"
#include "tests/parallel/fake_nccl.h"
#include "tests/support/error_text.h"
#include "tests/support/thread_communicator.h"

namespace weft::runtime {
namespace {

// A group that fails as NCCL's handle does.
class Group final : public test::ThreadCommunicator {
 public:
  Group(test::ThreadHub& hub, parallel::NcclHandle& handle)
      : ThreadCommunicator(hub, 0), handle_(handle) {}
  void poll() override {
    ++n_polls;
    handle_.poll();
  }

  int n_polls = 0;

 private:
  parallel::NcclHandle& handle_;
};

class GpuWaitTest : public ::testing::Test {
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

TEST_F(GpuWaitTest, EndsWithTheWorkThatItWaitsFor) {
  const parallel::NcclLibrary library(WEFT_FAKE_NCCL);
  parallel::NcclHandle handle(library, {}, 0, 2, 10);
  test::ThreadHub hub(2);
  Group group(hub, handle);
  parallel::Communicator* const groups[] = {&group};
  int n_looks = 0;
  wait_beside(groups, [&] { return ++n_looks == 1000; });
  EXPECT_EQ(n_looks, 1000);
  EXPECT_GE(group.n_polls, 10);
  EXPECT_LT(group.n_polls, 100) << "asking costs more than looking";
}

TEST_F(GpuWaitTest, EndsWithAnAsynchronousErrorOfNccl) {
  const parallel::NcclLibrary library(WEFT_FAKE_NCCL);
  parallel::NcclHandle handle(library, {}, 0, 2, 10);
  test::ThreadHub hub(2);
  Group group(hub, handle);
  parallel::Communicator* const groups[] = {&group};
  int n_looks = 0;
  const std::string text = test::error_text([&] {
    wait_beside(groups, [&] {
      if (++n_looks == 200) fake_->async_error = 6;
      return n_looks > 100'000;
    });
  });
  EXPECT_EQ(text, "NCCL failed: remote error: the cable is out");
  EXPECT_LT(n_looks, 1000);
  EXPECT_EQ(fake_->n_aborted, 1) << "aborted, so that the kernel ends";
  EXPECT_EQ(fake_->n_destroyed, 0);
}

}  // namespace
}  // namespace weft::runtime
