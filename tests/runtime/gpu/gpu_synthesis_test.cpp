// The GPU's synthetic weights against the CPU's, bit for bit, on odd shapes and offsets.
#include "runtime/gpu_synthesis.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/gpu_device.h"
#include "kernels/gpu_devices.h"
#include "runtime/synthetic.h"

namespace weft::runtime {
namespace {

struct Case {
  std::vector<size_t> shape;
  planner::Range rows;
  ColumnPart part;
  size_t row_step;
  DType model, dtype;
};

class GpuSynthesis : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const kernels::GpuQuery query = kernels::list_gpus();
    if (query.gpus.empty()) GTEST_SKIP() << query.why_none;
  }
};

// The part of the tensor as the CPU makes it, rows close together.
std::vector<std::byte> expected_of(const Case& c, const std::string& name, uint64_t seed) {
  const size_t columns = c.shape.size() > 1 ? c.shape[1] : 1;
  const size_t element = dtype_bytes(c.dtype), width = c.part.columns.size();
  const SyntheticShape shape = synthetic_shape(name, c.shape);
  std::vector<std::byte> made(c.rows.size() * width * element), row(width * 4);
  for (size_t r = 0; r < c.rows.size(); ++r) {
    const size_t first = (c.rows.begin + r) * columns + c.part.columns.begin;
    make_elements(synthetic_key(seed, name), shape, first, width, row.data(), c.model);
    convert(row.data(), c.model, made.data() + r * width * element, c.dtype, width);
  }
  return made;
}

TEST_P(GpuSynthesis, MakesTheBitsOfTheCpu) {
  const Case& c = GetParam();
  const std::string name = "model.layers.3.mlp.up_proj.weight";
  constexpr uint64_t kSeed = 41;
  kernels::GpuStream gpu;
  kernels::ThreadPool pool(1);
  kernels::Stream stream(pool, gpu.get());
  const size_t row_bytes = c.part.width * dtype_bytes(c.dtype);
  const size_t bytes = c.rows.size() * c.row_step * row_bytes;
  kernels::GpuBuffer buffer(bytes);
  std::vector<std::byte> there(bytes, std::byte{0xee});  // poison
  kernels::copy_bytes(buffer.data(), there.data(), bytes, gpu);
  make_on_gpu(kSeed, {c.model, c.shape},
              {name, c.rows, ColumnSplit::none, buffer.data(), c.row_step}, c.part, c.dtype,
              stream);
  kernels::copy_bytes(there.data(), buffer.data(), bytes, gpu);
  gpu.synchronise();
  const std::vector<std::byte> expected = expected_of(c, name, kSeed);
  const size_t used = c.part.columns.size() * dtype_bytes(c.dtype);
  for (size_t r = 0; r < c.rows.size(); ++r) {
    const std::byte* row = there.data() + r * c.row_step * row_bytes;
    ASSERT_EQ(std::memcmp(row, expected.data() + r * used, used), 0) << "row " << r;
    for (size_t i = used; i < c.row_step * row_bytes; ++i)
      ASSERT_EQ(row[i], std::byte{0xee}) << "byte " << i << " behind row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GpuSynthesis,
    testing::Values(Case{{64, 128}, {0, 64}, {{0, 128}, 128}, 1, DType::bf16, DType::bf16},
                    Case{{31, 33}, {3, 30}, {{0, 33}, 33}, 2, DType::bf16, DType::bf16},
                    Case{{33, 77}, {0, 33}, {{19, 50}, 40}, 1, DType::bf16, DType::f32},
                    Case{{7, 1000}, {1, 6}, {{250, 500}, 256}, 1, DType::f32, DType::f16},
                    Case{{5, 37}, {0, 5}, {{0, 37}, 37}, 2, DType::f16, DType::f16},
                    Case{{301}, {2, 301}, {{0, 1}, 1}, 2, DType::f32, DType::f32}));

}  // namespace
}  // namespace weft::runtime
