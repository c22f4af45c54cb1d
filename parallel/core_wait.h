// How long this process was ready to run and no core was free for it: what tells a crowded machine
// from one that stood still.
#pragma once

#include <cstdint>

namespace weft::parallel {

class CoreWait {
 public:
  CoreWait();
  ~CoreWait();
  CoreWait(const CoreWait&) = delete;
  CoreWait& operator=(const CoreWait&) = delete;

  // Nanoseconds since the call before, of the thread that made this object; 0 where the kernel does
  // not count them.
  int64_t since_last();

 private:
  int64_t total_ns() const;

  int fd_ = -1;
  int64_t last_ns_ = 0;
};

}  // namespace weft::parallel
