// Files as owned descriptors: bounded reads that never trust a size, writes that leave no half
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

class File {
 public:
  File() = default;
  static File open_read(const std::string& path);  // throws Error with the path and errno's text
  ~File();
  File(File&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), bytes_(other.bytes_) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // size when opened

  // Reads exactly n bytes at an offset; throws Error "… offset 12 beyond end 8" on a short file.
  void read_at(uint64_t offset, void* to, size_t n) const;

 private:
  int fd_ = -1;
  std::string path_;
  uint64_t bytes_ = 0;
};

// The whole file; throws Error where it is larger than `most_bytes`, a folder, or unreadable.
std::string read_text(const std::string& path, size_t most_bytes);

// Writes beside the target and renames: the old file or the new one, never a part. Throws Error
// (a full disk included) and removes what it had written.
void write_file(const std::string& path, std::string_view bytes);

// Throws Error where write_file would refuse: no such folder, not ours to write in, or a device or
// folder in the file's place, which the renaming would replace.
void check_writable(const std::string& path);

bool is_folder(const std::string& path);
bool is_file(const std::string& path);

}  // namespace weft
