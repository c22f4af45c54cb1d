// Owned anonymous memory by mmap.
#include "runtime/base/pages.h"

#include <sys/mman.h>

#include <cerrno>

#include "runtime/base/error.h"

namespace weft {

Pages::Pages(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    throw system_error(fmt::format("cannot allocate {:.2f} GiB", bytes / 1073741824.0), errno);
  data_ = static_cast<std::byte*>(p);
  madvise(p, bytes, MADV_HUGEPAGE);  // a hint: refused on kernels without huge pages
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace weft
