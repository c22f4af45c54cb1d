// A safetensors file from tensors in memory.
#include "runtime/safetensors_writer.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/base/file.h"
#include "runtime/safetensors.h"

namespace weft::runtime {
namespace {

size_t tensor_bytes(const NamedTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), dtype_bytes(tensor.dtype),
                         std::multiplies<>());
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  nlohmann::ordered_json header;
  size_t end = 0;
  for (const NamedTensor& tensor : tensors) {
    const size_t begin = end;
    end += tensor_bytes(tensor);
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts on 8 bytes
  std::string file;
  file.reserve(8 + text.size() + end);
  for (size_t i = 0; i < 8; ++i) file.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  file += text;
  for (const NamedTensor& tensor : tensors)
    file.append(static_cast<const char*>(tensor.data), tensor_bytes(tensor));
  write_file(path, file);
}

}  // namespace weft::runtime
