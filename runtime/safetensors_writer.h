// Writes a few tensors that are in memory as one safetensors file.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace weft::runtime {

struct NamedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<size_t> shape;
  const void* data = nullptr;  // dense
};

// The old file or the new one, never a part. Throws Error with the path.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace weft::runtime
