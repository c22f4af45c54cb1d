// Safetensors headers. H: two bytes, the length of the data, then the header's JSON. F: a whole
// file, length and all. What is accepted covers the data exactly.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "runtime/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

void expect_covered(const runtime::StoredTensors& tensors, uint64_t data_bytes) {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    FUZZ_EXPECT(tensor.begin <= tensor.end && tensor.end <= data_bytes);
    sum += tensor.end - tensor.begin;
    if (!tensor.dtype) continue;
    uint64_t bytes = dtype_bytes(*tensor.dtype);
    for (const size_t dimension : tensor.shape) bytes *= dimension;
    FUZZ_EXPECT(bytes == tensor.end - tensor.begin);
  }
  FUZZ_EXPECT(sum == data_bytes);
}

void fuzz_header(std::string_view input) {
  if (input.size() < 2) return;
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(input[i])); };
  const uint64_t data_bytes = byte(0) | byte(1) << 8;
  expect_covered(runtime::parse_safetensors_header(input.substr(2), data_bytes, "fuzz"),
                 data_bytes);
}

void fuzz_file(std::string_view input) {
  struct Memory {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ~Memory() { close(fd); }
  } memory;
  FUZZ_EXPECT(write(memory.fd, input.data(), input.size()) == static_cast<ssize_t>(input.size()));
  const auto opened = runtime::open_safetensors("/proc/self/fd/" + std::to_string(memory.fd));
  expect_covered(opened.tensors, opened.file.bytes() - opened.data_offset);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  using namespace weft::fuzz;
  return run_kind({{'H', fuzz_header}, {'F', fuzz_file}}, data, n);
}
