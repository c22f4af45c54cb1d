// Arenas: zeroed, page-aligned, owned once, given back.
#include "runtime/base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "runtime/base/error.h"

namespace weft {
namespace {

bool is_mapped(void* p) { return msync(p, 1, MS_ASYNC) == 0; }

TEST(Pages, AreZeroedAlignedAndWritable) {
  for (const size_t n : {size_t{1}, size_t{4097}, size_t{3} << 20}) {
    const Pages pages(n);
    ASSERT_EQ(pages.bytes(), n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pages.data()) % static_cast<size_t>(getpagesize()), 0u);
    EXPECT_TRUE(
        std::all_of(pages.data(), pages.data() + n, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(pages.data(), n, std::byte{0x5a});
    EXPECT_EQ(pages.data()[n - 1], std::byte{0x5a});
  }
}

TEST(Pages, NoneAreNothing) {
  const Pages none;
  const Pages zero(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(zero.data(), nullptr);
  EXPECT_EQ(zero.bytes(), 0u);
}

TEST(Pages, MoveAndAreGivenBackOnce) {
  std::byte* memory = nullptr;
  {
    Pages a(8192);
    memory = a.data();
    Pages b(std::move(a));
    EXPECT_EQ(a.data(), nullptr);
    EXPECT_EQ(a.bytes(), 0u);
    EXPECT_EQ(b.data(), memory);
    Pages c;
    c = std::move(b);
    EXPECT_EQ(c.data(), memory);
    EXPECT_EQ(c.bytes(), 8192u);
    EXPECT_TRUE(is_mapped(memory));
  }
  EXPECT_FALSE(is_mapped(memory));
}

TEST(Pages, TooManyAreRefusedWithTheirSize) {
  try {
    const Pages pages(size_t{1} << 60);
    FAIL() << "got an exbibyte";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot allocate 1073741824.00 GiB: Cannot allocate memory");
    EXPECT_EQ(error.status(), 1);
  }
}

}  // namespace
}  // namespace weft
