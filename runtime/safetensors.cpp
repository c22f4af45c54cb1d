// Reads and checks the header of one safetensors file.
#include "runtime/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/json_text.h"

namespace weft::runtime {
namespace {

using Json = nlohmann::json;
using Problems = std::vector<std::string>;

struct KnownType {
  std::string_view name;
  size_t bits;
  std::optional<DType> dtype;
};

constexpr KnownType kTypes[] = {
    {"F32", 32, DType::f32}, {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16},
    {"F64", 64, {}},         {"I64", 64, {}},         {"U64", 64, {}},
    {"I32", 32, {}},         {"U32", 32, {}},         {"I16", 16, {}},
    {"U16", 16, {}},         {"I8", 8, {}},           {"U8", 8, {}},
    {"BOOL", 8, {}},         {"F8_E4M3", 8, {}},      {"F8_E5M2", 8, {}},
};

const KnownType* known_type(std::string_view name) {
  for (const KnownType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

// Product of a shape in bytes; none where it overflows 64 bits.
std::optional<uint64_t> shape_bytes(const std::vector<size_t>& shape, size_t bits) {
  uint64_t n = bits / 8;
  for (size_t dimension : shape)
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(dimension), &n)) return std::nullopt;
  return n;
}

// Names come from the file: escaped and cut, so that they can't upset a terminal.
std::string quoted(const std::string& name) { return brief(Json(name)); }

std::string shape_text(const std::vector<size_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// A list of at most `most` whole numbers, or none.
std::optional<std::vector<size_t>> counts(const Json& list, size_t most) {
  if (!list.is_array() || list.size() > most) return std::nullopt;
  std::vector<size_t> numbers;
  for (const Json& item : list) {
    if (!item.is_number_unsigned()) return std::nullopt;
    numbers.push_back(item.get<size_t>());
  }
  return numbers;
}

// Fills `tensor` from a header entry; returns what is wrong, or nothing.
std::string read_entry(const Json& entry, StoredTensor& tensor) {
  if (!entry.is_object()) return fmt::format("is {}, not an object", brief(entry));
  for (const auto& [key, value] : entry.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return fmt::format("unknown member {}", quoted(key));
  if (entry.size() != 3) return "needs dtype, shape and data_offsets";
  if (!entry["dtype"].is_string()) return fmt::format("dtype is {}", brief(entry["dtype"]));
  tensor.dtype_text = entry["dtype"].get<std::string>().substr(0, 32);
  const auto shape = counts(entry["shape"], 8);
  if (!shape) return fmt::format("shape is {}, not up to 8 whole numbers", brief(entry["shape"]));
  const auto offsets = counts(entry["data_offsets"], 2);
  if (!offsets || offsets->size() != 2)
    return fmt::format("data_offsets are {}, not two whole numbers", brief(entry["data_offsets"]));
  tensor.shape = *shape;
  tensor.begin = (*offsets)[0];
  tensor.end = (*offsets)[1];
  return {};
}

// What the numbers of one entry say against each other, or nothing.
std::string range_problem(StoredTensor& tensor) {
  if (tensor.begin > tensor.end)
    return fmt::format("data_offsets {}..{} are reversed", tensor.begin, tensor.end);
  const KnownType* type = known_type(tensor.dtype_text);
  if (type == nullptr) return {};  // of unknown size; refused only where the model needs it
  tensor.dtype = type->dtype;
  const auto bytes = shape_bytes(tensor.shape, type->bits);
  if (!bytes)
    return fmt::format("shape {} of {} overflows 64 bits", shape_text(tensor.shape), type->name);
  if (*bytes != tensor.end - tensor.begin)
    return fmt::format("shape {} of {} takes {} bytes, but data_offsets {}..{} hold {}",
                       shape_text(tensor.shape), type->name, *bytes, tensor.begin, tensor.end,
                       tensor.end - tensor.begin);
  return {};
}

// The data must be covered once, without holes.
void check_cover(const StoredTensors& tensors, uint64_t data_bytes, Problems& wrong) {
  std::vector<const StoredTensors::value_type*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  const std::string* last = nullptr;
  for (const auto* entry : order) {
    const auto& [name, tensor] = *entry;
    if (tensor.begin < covered)
      wrong.push_back(fmt::format("tensor {} at data_offsets {}..{} overlaps {}, which ends at {}",
                                  quoted(name), tensor.begin, tensor.end, quoted(*last), covered));
    if (tensor.begin > covered)
      wrong.push_back(fmt::format("bytes {}..{} of the data, before tensor {}, belong to no tensor",
                                  covered, tensor.begin, quoted(name)));
    if (tensor.end >= covered) last = &name;
    covered = std::max(covered, tensor.end);
  }
  if (covered > data_bytes)
    wrong.push_back(fmt::format(
        "tensor {} ends at byte {} of the data, but the file has {}: it was cut short, or its "
        "header is wrong",
        quoted(*last), covered, data_bytes));
  if (covered < data_bytes)
    wrong.push_back(fmt::format("the last {} of {} data bytes belong to no tensor",
                                data_bytes - covered, data_bytes));
}

void check_metadata(const Json& metadata, Problems& wrong) {
  if (!metadata.is_object())
    return wrong.push_back(fmt::format("__metadata__ is {}, not an object", brief(metadata)));
  for (const auto& [key, value] : metadata.items())
    if (!value.is_string())
      wrong.push_back(
          fmt::format("__metadata__ member {} is {}, not a string", quoted(key), brief(value)));
}

uint64_t little_endian(const unsigned char (&bytes)[8]) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

StoredTensors parse_safetensors_header(std::string_view header, uint64_t data_bytes,
                                       const std::string& where) {
  const Json json = parse_json(header, where + ": header", {.depth = 8});
  if (!json.is_object())
    throw input_error("{}: the header is {}, not an object", where, brief(json));
  Problems wrong;
  StoredTensors tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      check_metadata(entry, wrong);
      continue;
    }
    StoredTensor tensor;
    std::string problem = read_entry(entry, tensor);
    if (problem.empty()) problem = range_problem(tensor);
    if (problem.empty())
      tensors.emplace(name, std::move(tensor));
    else
      wrong.push_back(fmt::format("tensor {}: {}", quoted(name), problem));
  }
  if (wrong.empty()) check_cover(tensors, data_bytes, wrong);
  planner::refuse(where, wrong);
  return tensors;
}

SafetensorsFile open_safetensors(const std::string& path) {
  SafetensorsFile opened;
  opened.file = File::open_read(path);
  const uint64_t file_bytes = opened.file.bytes();
  if (file_bytes < 8)
    throw input_error("{}: {} bytes are too few for a safetensors file", path, file_bytes);
  unsigned char length[8];
  opened.file.read_at(0, length, sizeof length);
  const uint64_t header_bytes = little_endian(length);
  if (header_bytes > kMostHeaderBytes)
    throw input_error("{}: a header of {} bytes; at most {} are read (is it a safetensors file?)",
                      path, header_bytes, kMostHeaderBytes);
  if (header_bytes > file_bytes - 8)
    throw input_error("{}: a header of {} bytes, but the file has only {} after its length", path,
                      header_bytes, file_bytes - 8);
  std::string header(header_bytes, '\0');
  opened.file.read_at(8, header.data(), header.size());
  opened.data_offset = 8 + header_bytes;
  opened.tensors = parse_safetensors_header(header, file_bytes - opened.data_offset, path);
  return opened;
}

std::string_view safetensors_name(DType dtype) {
  for (const KnownType& type : kTypes)
    if (type.dtype == dtype) return type.name;
  throw std::logic_error("no safetensors name for this dtype");
}

}  // namespace weft::runtime
