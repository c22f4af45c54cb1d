// Files as owned descriptors.
#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "runtime/base/error.h"

namespace weft {
namespace {

// read and write take at most this much at once; larger calls are cut by the kernel anyway.
constexpr size_t kLargestCall = size_t{1} << 30;

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kLargestCall));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot write " + path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void write_and_sync(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) throw system_error("cannot create " + path, errno);
  try {
    write_all(fd, bytes, path);
  } catch (...) {
    ::close(fd);
    throw;
  }
  if (::close(fd) != 0) throw system_error("cannot write " + path, errno);
}

}  // namespace

File File::open_read(const std::string& path) {
  File file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a fifo would wait
  if (file.fd_ < 0) throw Error(system_error("cannot open " + path, errno).what(), 2);
  struct stat info {};
  if (fstat(file.fd_, &info) != 0) throw system_error("cannot look at " + path, errno);
  if (!S_ISREG(info.st_mode)) throw input_error("{} is not a regular file", path);
  file.bytes_ = static_cast<uint64_t>(info.st_size);
  return file;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::read_at(uint64_t offset, void* to, size_t n) const {
  if (offset > bytes_ || n > bytes_ - offset)
    throw input_error("{}: {} bytes at offset {} go beyond its end at {}", path_, n, offset,
                      bytes_);
  auto* out = static_cast<char*>(to);
  while (n > 0) {
    const ssize_t got = pread(fd_, out, std::min(n, kLargestCall), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("cannot read " + path_, errno);
    if (got == 0) throw run_error("{} was cut at offset {} while it was read", path_, offset);
    out += got;
    offset += static_cast<uint64_t>(got);
    n -= static_cast<size_t>(got);
  }
}

std::string read_text(const std::string& path, size_t most_bytes) {
  const File file = File::open_read(path);
  if (file.bytes() > most_bytes)
    throw input_error("{} has {} bytes; at most {} are read", path, file.bytes(), most_bytes);
  std::string text(file.bytes(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void check_writable(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    throw input_error("cannot write {}: it is there and is no regular file", path);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw Error(system_error("cannot write " + path, errno).what(), 2);
}

void write_file(const std::string& path, std::string_view bytes) {
  check_writable(path);
  const std::string part = fmt::format("{}.part{}", path, getpid());
  try {
    write_and_sync(part, bytes);
  } catch (...) {
    ::unlink(part.c_str());
    throw;
  }
  if (::rename(part.c_str(), path.c_str()) == 0) return;
  const int why = errno;
  ::unlink(part.c_str());
  throw system_error("cannot write " + path, why);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace weft
