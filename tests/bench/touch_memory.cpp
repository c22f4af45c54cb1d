// touch_memory GIB: writes to that much fresh memory and gives it back. A hypervisor that takes
// unused memory away has to find new memory for the next program; after this it need not, and a
// timing that follows at once is of the program and the disk.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  const long gib = argc == 2 ? std::strtol(argv[1], nullptr, 10) : 0;
  if (gib < 1 || gib > 1024) {
    std::fputs("usage: touch_memory GIB, 1 to 1024\n", stderr);
    return 2;
  }
  const size_t bytes = static_cast<size_t>(gib) << 30;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("touch_memory: mmap");
    return 1;
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  constexpr size_t kPageBytes = 4096;
  auto* byte = static_cast<volatile char*>(memory);
  for (size_t at = 0; at < bytes; at += kPageBytes) byte[at] = 1;
  return 0;
}
