// Finds every tensor a model needs in a folder's safetensors files, and reads rows of them.
#include "runtime/checkpoint.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
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

#ifndef MADV_POPULATE_READ  // Linux 5.14
#define MADV_POPULATE_READ 22
#endif

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

// Calls work(thread, piece) for every piece, on all threads of the pool. They take the pieces in
// the file's order: the kernel reads ahead of one position in a file, and threads far apart would
// each undo the other's.
template <class Work>
void in_order(kernels::ThreadPool& pool, size_t n_pieces, const Work& work) {
  std::atomic<size_t> next{0};
  pool.split(std::min(n_pieces, pool.n_threads()), 1, [&](size_t thread, size_t) {
    for (size_t piece = next++; piece < n_pieces; piece = next++) work(thread, piece);
  });
}

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Asks about a byte here and there, from the first on: files are read front to back, and a wrong
// yes only costs time.
bool in_page_cache(const File& file, uint64_t offset, size_t n_bytes) {
  constexpr size_t kStep = size_t{128} << 10;
  for (size_t at = 0; at < n_bytes; at += kStep) {
    char byte;
    const iovec to{&byte, 1};
    if (preadv2(file.fd(), &to, 1, static_cast<off_t>(offset + at), RWF_NOWAIT) != 1) return false;
  }
  return true;
}

// Without Linux 5.14 pages are found as they are first read.
void populate(const File& file, uint64_t offset, std::byte* at, size_t n_bytes) {
  if (madvise(at, n_bytes, MADV_POPULATE_READ) == 0 || errno == EINVAL) return;
  throw system_error(
      fmt::format("cannot map {} bytes of {} at offset {}", n_bytes, file.path(), offset), errno);
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

Checkpoint::Rows Checkpoint::rows(const std::string& name, size_t begin, size_t end) const {
  const auto it = places_.find(name);
  if (it == places_.end()) throw input_error("the checkpoint has no tensor {}", name);
  const auto& [info, file, offset] = it->second;
  if (begin > end || end > info.shape.at(0))
    throw input_error("tensor {}: rows {}..{} of {}", name, begin, end, info.shape[0]);
  const size_t row_bytes = n_elements(info.shape) / info.shape[0] * dtype_bytes(info.dtype);
  return {files_[file].file, offset + begin * row_bytes, (end - begin) * row_bytes};
}

void Checkpoint::read_rows(const std::string& name, size_t begin, size_t end, void* to,
                           kernels::ThreadPool& pool) {
  const Rows from = rows(name, begin, end);
  auto* out = static_cast<std::byte*>(to);
  // Pieces end where the destination's huge pages do, so that no two threads touch one first.
  const size_t into_page = reinterpret_cast<uintptr_t>(to) % kReadBytes;
  in_order(pool, (into_page + from.bytes + kReadBytes - 1) / kReadBytes, [&](size_t, size_t piece) {
    const size_t first = std::max(piece * kReadBytes, into_page) - into_page;
    const size_t until = std::min((piece + 1) * kReadBytes - into_page, from.bytes);
    from.file.read_at(from.offset + first, out + first, until - first);
    bytes_read_ += until - first;
  });
}

std::optional<uint64_t> Checkpoint::file_offset(const std::string& name, size_t row) const {
  return rows(name, row, row).offset;
}

void Checkpoint::map_rows(const std::string& name, size_t begin, size_t end, void* to,
                          kernels::ThreadPool& pool) {
  const Rows from = rows(name, begin, end);
  auto* out = static_cast<std::byte*>(to);
  const size_t page = page_bytes();
  WEFT_EXPECT((from.offset - reinterpret_cast<uintptr_t>(to)) % page == 0);
  const size_t lead = std::min<size_t>((page - from.offset % page) % page, from.bytes);
  const size_t whole = (from.bytes - lead) / page * page;
  const size_t rest = from.bytes - lead - whole;
  // Pages shared with other tensors stay anonymous.
  from.file.read_at(from.offset, out, lead);
  from.file.read_at(from.offset + lead + whole, out + lead + whole, rest);
  bytes_read_ += lead + rest;
  if (whole == 0) return;
  const Rows mapped{from.file, from.offset + lead, whole};
  if (mmap(out + lead, whole, PROT_READ, MAP_PRIVATE | MAP_FIXED, from.file.fd(),
           static_cast<off_t>(mapped.offset)) == MAP_FAILED)
    throw system_error(fmt::format("cannot map {} bytes of {} at offset {}", whole,
                                   from.file.path(), mapped.offset),
                       errno);
  bring_in(mapped, out + lead, pool);
}

void Checkpoint::bring_in(const Rows& rows, std::byte* to, kernels::ThreadPool& pool) {
  passed_.resize(std::max(passed_.size(), pool.n_threads()));
  in_order(pool, (rows.bytes + kReadBytes - 1) / kReadBytes, [&](size_t thread, size_t piece) {
    const size_t first = piece * kReadBytes;
    const size_t n_bytes = std::min(kReadBytes, rows.bytes - first);
    if (!in_page_cache(rows.file, rows.offset + first, n_bytes)) {
      Pages& passed = passed_[thread];
      if (passed.bytes() == 0) passed = Pages(kReadBytes);
      rows.file.read_at(rows.offset + first, passed.data(), n_bytes);
    }
    populate(rows.file, rows.offset + first, to + first, n_bytes);
    bytes_read_ += n_bytes;
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
