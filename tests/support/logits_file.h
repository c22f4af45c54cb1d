// Tensors of a safetensors file as plain values, and how near logits must lie to others.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "runtime/safetensors.h"

namespace weft::test {

template <class T>
std::vector<T> read_tensor(const std::string& path, const std::string& name) {
  const runtime::SafetensorsFile opened = runtime::open_safetensors(path);
  const runtime::StoredTensor& tensor = opened.tensors.at(name);
  std::vector<T> values((tensor.end - tensor.begin) / sizeof(T));
  opened.file.read_at(opened.data_offset + tensor.begin, values.data(), tensor.end - tensor.begin);
  return values;
}

// No logit is further away than 1e-4 of the largest one. NaN never passes.
inline testing::AssertionResult near_largest(std::span<const float> got,
                                             std::span<const float> want) {
  if (got.size() != want.size() || want.empty())
    return testing::AssertionFailure() << got.size() << " logits, not " << want.size();
  float largest = 0;
  for (float x : want) largest = std::max(largest, std::abs(x));
  size_t worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= std::abs(got[worst] - want[worst]))) worst = i;
  if (std::abs(got[worst] - want[worst]) <= 1e-4f * largest) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "worst at " << worst << ": got " << got[worst] << ", want "
                                     << want[worst] << ", largest " << largest;
}

}  // namespace weft::test
