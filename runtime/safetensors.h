// One safetensors file: a little-endian 64-bit length, a JSON header of that length, then the
// tensors' bytes. The header is hostile until every number in it is checked against the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/file.h"

namespace weft::runtime {

inline constexpr uint64_t kMostHeaderBytes = 100'000'000;  // as the format's own library has it

struct StoredTensor {
  std::string dtype_text;      // as the header says it: "BF16"
  std::optional<DType> dtype;  // f32, f16 or bf16; none for types that weft does not compute with
  std::vector<size_t> shape;
  uint64_t begin = 0;  // bytes from the start of the data, which follows the header
  uint64_t end = 0;
};

using StoredTensors = std::map<std::string, StoredTensor>;

// Checks the JSON of a header against the number of bytes that follow it. Every problem comes in
// one Error with the file, the tensors and the numbers: bad JSON, doubled names, unknown members,
// shapes that overflow, ranges that are reversed, out of bounds, overlapping, with holes, or of
// another size than shape and dtype give.
StoredTensors parse_safetensors_header(std::string_view header, uint64_t data_bytes,
                                       const std::string& where);

struct SafetensorsFile {
  File file;
  uint64_t data_offset = 0;  // of the first byte after the header
  StoredTensors tensors;
};
SafetensorsFile open_safetensors(const std::string& path);

// "BF16" for bf16. Throws std::logic_error for a type that checkpoints don't have.
std::string_view safetensors_name(DType dtype);

}  // namespace weft::runtime
