// Finds every tensor a model needs in a folder's safetensors files, and reads rows of them.
#include "runtime/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>

#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/sha256.h"
#include "runtime/json_text.h"
#include "runtime/tensor_list.h"

namespace weft::runtime {
namespace {

using Problems = std::vector<std::string>;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kMostIndexBytes = size_t{64} << 20;
// Of one pread. A huge page that the kernel zeroes on first touch is still in the cache when the
// copy reaches it; with 8 MiB it is not, and loading takes three times as long.
constexpr size_t kReadBytes = size_t{2} << 20;

// An index must not lead out of its folder.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

// Opens the folder's files; a shard that can't be read is one problem among others.
std::vector<SafetensorsFile> open_files(const std::string& folder,
                                        const std::map<std::string, std::string>& index,
                                        Problems& wrong) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  if (index.empty()) names.insert(kSingleFile);
  std::vector<SafetensorsFile> files;
  for (const std::string& name : names) try {
      files.push_back(open_safetensors(folder + "/" + name));
    } catch (const Error& error) {
      wrong.push_back(error.what());
    }
  return files;
}

std::map<std::string, std::string> read_index(const std::string& folder) {
  if (is_file(folder + "/" + kSingleFile)) return {};
  const std::string path = folder + "/" + kIndexFile;
  if (is_file(path)) return parse_checkpoint_index(read_text(path, kMostIndexBytes), path);
  if (access(folder.c_str(), R_OK | X_OK) != 0)
    throw input_error("cannot read folder {}: {}", folder, std::strerror(errno));
  throw input_error("{} has neither {} nor {}", folder, kSingleFile, kIndexFile);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The file that holds a tensor, or null with a problem noted.
const SafetensorsFile* file_of(const std::string& tensor,
                               const std::map<std::string, std::string>& index,
                               const std::vector<SafetensorsFile>& files, Problems& wrong) {
  const auto entry = index.find(tensor);
  if (!index.empty() && entry == index.end()) {
    wrong.push_back(fmt::format("tensor {} is not in {}", tensor, kIndexFile));
    return nullptr;
  }
  const std::string name = index.empty() ? kSingleFile : entry->second;
  for (const SafetensorsFile& file : files) {
    if (base_name(file.file.path()) != name) continue;
    if (file.tensors.contains(tensor)) return &file;
    wrong.push_back(fmt::format("tensor {} is not in {}", tensor, name));
  }
  return nullptr;  // a file that could not be opened is a problem already
}

// True where the stored tensor is what the model needs.
bool fits(const NamedShape& needed, const StoredTensor& stored, const std::string& file,
          Problems& wrong) {
  if (!stored.dtype)
    wrong.push_back(fmt::format("tensor {} in {} has dtype {}; supported are F32, F16 and BF16",
                                needed.name, file, brief(nlohmann::json(stored.dtype_text))));
  if (stored.shape != needed.shape)
    wrong.push_back(fmt::format("tensor {} in {} has shape [{}]; the model's config asks for [{}]",
                                needed.name, file, fmt::join(stored.shape, ", "),
                                fmt::join(needed.shape, ", ")));
  return stored.dtype && stored.shape == needed.shape;
}

// Buffers that old versions of transformers saved, and a tied head.
bool is_harmless(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name == kHeadName;
}

template <class Places>
void log_extra(const std::vector<SafetensorsFile>& files, const Places& places,
               const std::string& folder) {
  size_t n = 0;
  std::string first;
  for (const SafetensorsFile& file : files)
    for (const auto& [name, tensor] : file.tensors) {
      if (places.contains(name) || is_harmless(name)) continue;
      if (n++ == 0) first = brief(nlohmann::json(name));
    }
  if (n > 0)
    spdlog::info("{}: {} tensors that the model does not use are left alone, such as {}", folder, n,
                 first);
}

}  // namespace

std::map<std::string, std::string> parse_checkpoint_index(std::string_view json,
                                                          const std::string& where) {
  const nlohmann::json index = parse_json(json, where, {.depth = 16});
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw input_error("{}: needs an object \"weight_map\" from tensor to file", where);
  std::map<std::string, std::string> files;
  Problems wrong;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (file.is_string() && is_plain_file_name(file.get_ref<const std::string&>()))
      files[tensor] = file.get<std::string>();
    else
      wrong.push_back(fmt::format("the file of tensor {} is {}, not a plain file name",
                                  brief(nlohmann::json(tensor)), brief(file)));
  }
  if (files.empty() && wrong.empty()) wrong.push_back(fmt::format("weight_map is empty"));
  planner::refuse(where, wrong);
  return files;
}

Checkpoint::Checkpoint(const std::string& folder, const planner::ModelSpec& spec) {
  const std::vector<NamedShape> needed = tensor_list(spec);
  const auto index = read_index(folder);
  Problems wrong;
  files_ = open_files(folder, index, wrong);
  for (const NamedShape& tensor : needed) {
    const SafetensorsFile* file = file_of(tensor.name, index, files_, wrong);
    if (file == nullptr) continue;
    const StoredTensor& stored = file->tensors.at(tensor.name);
    if (!fits(tensor, stored, base_name(file->file.path()), wrong)) continue;
    places_[tensor.name] = {{*stored.dtype, stored.shape},
                            static_cast<size_t>(file - files_.data()),
                            file->data_offset + stored.begin};
  }
  planner::refuse(folder, wrong);
  log_extra(files_, places_, folder);
  for (SafetensorsFile& file : files_)
    file.tensors.clear();  // headers of large models are not small
  advise(POSIX_FADV_SEQUENTIAL);
}

void Checkpoint::advise(int access) const {
  for (const SafetensorsFile& file : files_) posix_fadvise(file.file.fd(), 0, 0, access);
}

const TensorInfo* Checkpoint::find(const std::string& name) const {
  const auto it = places_.find(name);
  return it == places_.end() ? nullptr : &it->second.info;
}

TensorSource::Place Checkpoint::place(const std::string& name) const {
  const auto it = places_.find(name);
  return it == places_.end() ? Place{} : Place{it->second.file, it->second.offset};
}

void Checkpoint::read_rows(const std::string& name, size_t begin, size_t end, void* to,
                           kernels::ThreadPool& pool) {
  const auto it = places_.find(name);
  if (it == places_.end()) throw input_error("the checkpoint has no tensor {}", name);
  const Stored& place = it->second;
  if (begin > end || end > place.info.shape.at(0))
    throw input_error("tensor {}: rows {}..{} of {}", name, begin, end, place.info.shape[0]);
  const size_t row_bytes =
      n_elements(place.info.shape) / place.info.shape[0] * dtype_bytes(place.info.dtype);
  const File& file = files_[place.file].file;
  const uint64_t offset = place.offset + begin * row_bytes;
  auto* out = static_cast<std::byte*>(to);
  const size_t n_bytes = (end - begin) * row_bytes;
  // Pieces end where the destination's huge pages do, so that no two threads touch one first.
  const size_t into_page = reinterpret_cast<uintptr_t>(to) % kReadBytes;
  const size_t n_pieces = (into_page + n_bytes + kReadBytes - 1) / kReadBytes;
  const auto read_piece = [&](size_t piece) {
    const size_t from = std::max(piece * kReadBytes, into_page) - into_page;
    const size_t until = std::min((piece + 1) * kReadBytes - into_page, n_bytes);
    file.read_at(offset + from, out + from, until - from);
    bytes_read_ += until - from;
  };
  // The threads take the pieces in the file's order: the kernel reads ahead of one position in a
  // file, and threads far apart would each undo the other's.
  std::atomic<size_t> next{0};
  pool.split(std::min(n_pieces, pool.n_threads()), 1, [&](size_t, size_t) {
    for (size_t piece = next++; piece < n_pieces; piece = next++) read_piece(piece);
  });
}

// Samples lie far apart: read ahead of them, the disk would move most of the file.
std::string Checkpoint::fingerprint() const {
  advise(POSIX_FADV_RANDOM);
  constexpr size_t kSampleBytes = 64;  // from the middle of a tensor
  std::string text;
  for (const auto& [name, stored] : places_) {
    const auto& [dtype, shape] = stored.info;
    const size_t n_bytes = n_elements(shape) * dtype_bytes(dtype);
    std::string sample(std::min(kSampleBytes, n_bytes), '\0');
    files_[stored.file].file.read_at(stored.offset + (n_bytes - sample.size()) / 2, sample.data(),
                                     sample.size());
    text += fmt::format("{} {} {} ", name, dtype_name(dtype), fmt::join(shape, ",")) + sample;
  }
  advise(POSIX_FADV_SEQUENTIAL);
  return sha256_hex(text);
}

std::unique_ptr<TensorSource> open_checkpoint(const std::string& folder,
                                              const planner::ModelSpec& spec) {
  return std::make_unique<Checkpoint>(folder, spec);
}

}  // namespace weft::runtime
