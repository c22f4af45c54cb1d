// A Hugging Face folder's safetensors files as one source of tensors.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/pages.h"
#include "runtime/safetensors.h"
#include "runtime/tensor_source.h"

namespace weft::runtime {

// File names in model.safetensors.index.json by tensor name. Throws Error: bad JSON, names that are
// not plain file names.
std::map<std::string, std::string> parse_checkpoint_index(std::string_view json,
                                                          const std::string& where);

class Checkpoint final : public TensorSource {
 public:
  // Opens every file that the model's tensors are in, and checks all of them against `spec`.
  Checkpoint(const std::string& folder, const planner::ModelSpec& spec);

  const TensorInfo* find(const std::string& name) const override;
  Place place(const std::string& name) const override;
  void read_rows(const std::string& name, size_t begin, size_t end, void* to,
                 kernels::ThreadPool& pool) override;
  std::optional<uint64_t> file_offset(const std::string& name, size_t row) const override;
  void map_rows(const std::string& name, size_t begin, size_t end, void* to,
                kernels::ThreadPool& pool) override;
  std::string fingerprint() const override;
  size_t bytes_read() const override { return bytes_read_; }

 private:
  struct Stored {
    TensorInfo info;
    size_t file = 0;      // in files_
    uint64_t offset = 0;  // in the file
  };

  struct Rows {
    const File& file;
    uint64_t offset;  // in the file
    size_t bytes;
  };
  Rows rows(const std::string& name, size_t begin, size_t end) const;
  // Pages of a file that are already mapped at `to`: into the page cache, in large reads, and from
  // there into the page table.
  void bring_in(const Rows& rows, std::byte* to, kernels::ThreadPool& pool);

  void advise(int access) const;  // the kernel on how the files will be read: POSIX_FADV_…

  std::vector<SafetensorsFile> files_;
  std::map<std::string, Stored> places_;
  std::atomic<size_t> bytes_read_ = 0;
  std::vector<Pages> passed_;  // one a thread: what only passes through on its way to the cache
};

}  // namespace weft::runtime
