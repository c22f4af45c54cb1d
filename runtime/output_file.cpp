// A new file written front to back.
#include "runtime/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/error.h"

namespace weft::runtime {

OutputFile::OutputFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw system_error("cannot create " + path, errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("cannot write " + path_, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void OutputFile::close() {
  if (::close(std::exchange(fd_, -1)) != 0) throw system_error("cannot write " + path_, errno);
}

}  // namespace weft::runtime
