// The GPU's numbers are the CPU's, it finds what is wrong, and its kernel copies every byte.
#include "kernels/gpu_links.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/gpu/gpu_array.h"

namespace weft::kernels {
namespace {

// The stream that GpuArray's copies go through too: they may still be on their way.
constexpr CudaStream kStream = nullptr;

template <class T>
class GpuLinks : public testing::Test {};
using Types = testing::Types<float, f16, bf16>;
TYPED_TEST_SUITE(GpuLinks, Types);

TYPED_TEST(GpuLinks, FillsAsTheCpuDoesAndCountsWhatIsWrong) {
  WEFT_NEEDS_A_GPU();
  for (const size_t n : {1, 31, 4096, 100'003}) {
    const test::GpuArray<TypeParam> data(n, from_float<TypeParam>(0));
    const test::GpuArray<uint64_t> n_wrong(1, uint64_t{0});
    const uint32_t mask = pattern_mask(dtype_of<TypeParam>::value, 8);
    const LinkPattern args{data.data(), n, 77, 2, 3, mask};
    gpu_fill_pattern(args, kStream);
    gpu_count_wrong(args, n_wrong.data(), kStream);
    synchronise(kStream);
    EXPECT_EQ(n_wrong.get()[0], 0u);
    std::vector<TypeParam> host = data.get();
    EXPECT_EQ(count_wrong({host.data(), n, 77, 2, 3, mask}), 0u);
    std::vector<TypeParam> sums(n);
    fill_pattern({sums.data(), n, 77, 0, 8, mask});
    reinterpret_cast<unsigned char*>(&sums[n - 1])[0] ^= 1;
    const test::GpuArray<TypeParam> summed(sums);
    gpu_count_wrong({summed.data(), n, 77, 0, 8, mask}, n_wrong.data(), kStream);
    synchronise(kStream);
    EXPECT_EQ(n_wrong.get()[0], 1u);
  }
}

TEST(GpuLinksCopy, MovesEveryByteAndNoMore) {
  WEFT_NEEDS_A_GPU();
  for (const size_t n : {1, 8, 15, 16, 17, 4099, 1 << 20, (1 << 20) + 3}) {
    std::vector<unsigned char> from(n);
    for (size_t i = 0; i < n; ++i) from[i] = static_cast<unsigned char>(i * 131 + i / 256 + 1);
    const test::GpuArray<unsigned char> source(from);
    const test::GpuArray<unsigned char> target(n + 16, static_cast<unsigned char>(0xee));
    gpu_copy_by_kernel(target.data(), source.data(), n, kStream);
    synchronise(kStream);
    std::vector<unsigned char> got = target.get();
    EXPECT_TRUE(std::equal(from.begin(), from.end(), got.begin())) << n;
    for (size_t i = n; i < got.size(); ++i) ASSERT_EQ(got[i], 0xee) << n << " " << i;
  }
}

}  // namespace
}  // namespace weft::kernels
