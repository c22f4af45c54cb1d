// Owned anonymous memory by mmap.
#include "runtime/base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "runtime/base/error.h"

namespace weft {

Pages::Pages(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    throw system_error(fmt::format("cannot allocate {:.2f} GiB", bytes / 1073741824.0), errno);
  data_ = static_cast<std::byte*>(p);
  advise_huge({data_, bytes_}, true);
}

// Refused on kernels without huge pages.
void Pages::advise_huge(std::span<std::byte> part, bool huge) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t end = (begin + part.size()) / page * page;
  begin = (begin + page - 1) / page * page;
  if (begin < end)
    madvise(reinterpret_cast<void*>(begin), end - begin, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace weft
