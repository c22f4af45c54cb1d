// Writes a Hugging Face folder of synthetic weights.
#include "runtime/synth_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/hf_config_writer.h"
#include "runtime/output_file.h"
#include "runtime/safetensors.h"
#include "runtime/synthetic.h"
#include "runtime/tensor_list.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;
using Shard = std::vector<NamedShape>;

constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr size_t kOtherBytes = size_t{1} << 20;  // room for headers, the index and configs

size_t tensor_bytes(const NamedShape& tensor, DType dtype) {
  return n_elements(tensor.shape) * dtype_bytes(dtype);
}

// By name, as the format's own library writes them; a new shard where the last would be too large.
std::vector<Shard> cut_shards(const planner::ModelSpec& spec, size_t most_bytes) {
  std::vector<NamedShape> list = tensor_list(spec);
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<Shard> shards(1);
  size_t bytes = 0;
  for (NamedShape& tensor : list) {
    const size_t more = tensor_bytes(tensor, spec.dtype);
    if (!shards.back().empty() && bytes + more > most_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::string shard_name(size_t i, size_t n) {
  if (n == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
}

// Length, JSON, and spaces up to a multiple of 64, so that tensors lie aligned in the file.
std::string shard_header(const Shard& shard, DType dtype) {
  nlohmann::json json = {{"__metadata__", {{"format", "pt"}}}};
  size_t offset = 0;
  for (const NamedShape& tensor : shard) {
    const size_t end = offset + tensor_bytes(tensor, dtype);
    json[tensor.name] = {{"dtype", safetensors_name(dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  text.resize((8 + text.size() + 63) / 64 * 64 - 8, ' ');
  std::string length;
  for (size_t i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

std::string index_text(const std::vector<Shard>& shards, DType dtype) {
  nlohmann::json map = nlohmann::json::object();
  size_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i)
    for (const NamedShape& tensor : shards[i]) {
      map[tensor.name] = shard_name(i, shards.size());
      total += tensor_bytes(tensor, dtype);
    }
  return nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
}

// Files are written here; gone with everything in it unless it was published.
class Staging {
 public:
  explicit Staging(std::string to) : to_(std::move(to)), inside_(fs::exists(to_)) {
    const std::string part = fmt::format(".part{}", getpid());
    path_ = inside_ ? to_ + "/" + part : to_ + part;
    std::error_code failed;
    if (!fs::create_directory(path_, failed) || failed)
      throw run_error("cannot create folder {}: {}", path_, failed.message());
  }
  ~Staging() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  const std::string& path() const { return path_; }

  // Into an empty folder that was there before: file by file, config.json last.
  void publish() {
    std::error_code failed;
    if (!inside_) {
      fs::rename(path_, to_, failed);
      if (failed) throw run_error("cannot rename {} to {}: {}", path_, to_, failed.message());
      path_.clear();
      return;
    }
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return std::pair(a == "config.json", a) < std::pair(b == "config.json", b);
    });
    for (const std::string& name : names) fs::rename(path_ + "/" + name, to_ + "/" + name);
  }

 private:
  std::string to_;
  bool inside_;
  std::string path_;
};

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

// Without the slash at its end, if any.
std::string tidy(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void check_target(const std::string& to, size_t needed_bytes) {
  if (to.empty()) throw input_error("the folder to write has no name");
  std::error_code failed;
  const bool there = fs::exists(to, failed);
  if (there && !(is_folder(to) && fs::is_empty(to, failed)))
    throw input_error("{} is there already and is not an empty folder", to);
  const std::string disk = there ? to : parent_of(to);
  struct statvfs info {};
  if (statvfs(disk.c_str(), &info) != 0)
    throw Error(system_error("cannot write into folder " + disk, errno).what(), 2);
  const size_t free_bytes = static_cast<size_t>(info.f_bavail) * info.f_frsize;
  if (free_bytes < needed_bytes)
    throw run_error("the disk of {} has {} free, and {} needs {}", disk, human_bytes(free_bytes),
                    to, human_bytes(needed_bytes));
}

void copy_tokenizer(const std::string& from, const std::string& to) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = from + "/" + name;
    std::error_code failed;
    if (is_file(path)) fs::copy_file(path, to + "/" + name, failed);
    if (failed) throw run_error("cannot copy {} to {}: {}", path, to, failed.message());
  }
}

struct Writer {
  const SynthFolder& synth;
  kernels::ThreadPool& pool;
  const LoadProgress& progress;
  size_t total_bytes;
  size_t done_bytes = 0;

  void write_tensor(Synthetic& source, const NamedShape& tensor, OutputFile& file) {
    const size_t row_bytes = tensor_bytes(tensor, synth.spec.dtype) / tensor.shape[0];
    const size_t most = std::max<size_t>(1, kPieceBytes / row_bytes);
    std::string piece;
    for (size_t begin = 0; begin < tensor.shape[0]; begin += most) {
      const size_t end = std::min(begin + most, tensor.shape[0]);
      piece.resize((end - begin) * row_bytes);
      source.read_rows(tensor.name, begin, end, piece.data(), pool);
      file.write(piece);
      done_bytes += piece.size();
      if (progress) progress(done_bytes, total_bytes);
    }
  }

  void write_shard(Synthetic& source, const Shard& shard, const std::string& path) {
    OutputFile file(path);
    file.write(shard_header(shard, synth.spec.dtype));
    for (const NamedShape& tensor : shard) write_tensor(source, tensor, file);
    file.close();
  }
};

}  // namespace

void write_synth_folder(const SynthFolder& synth, const std::string& folder,
                        kernels::ThreadPool& pool, const LoadProgress& progress) {
  const std::string to = tidy(folder);
  const std::vector<Shard> shards = cut_shards(synth.spec, synth.most_shard_bytes);
  size_t total = 0;
  for (const Shard& shard : shards)
    for (const NamedShape& tensor : shard) total += tensor_bytes(tensor, synth.spec.dtype);
  const GenerationDefaults defaults = synth.model_folder.empty()
                                          ? GenerationDefaults{}
                                          : read_generation_defaults(synth.model_folder);
  const std::string config = hf_config_text(synth.spec, defaults);
  check_target(to, total + kOtherBytes);

  Staging staging(to);
  const std::string at = staging.path() + "/";
  write_file(at + "config.json", config);
  write_file(at + "generation_config.json", generation_config_text(defaults));
  if (!synth.model_folder.empty()) copy_tokenizer(synth.model_folder, staging.path());
  if (shards.size() > 1)
    write_file(at + "model.safetensors.index.json", index_text(shards, synth.spec.dtype));
  Synthetic source(synth.spec, synth.seed);
  Writer writer{synth, pool, progress, total};
  for (size_t i = 0; i < shards.size(); ++i)
    writer.write_shard(source, shards[i], at + shard_name(i, shards.size()));
  staging.publish();
}

}  // namespace weft::runtime
