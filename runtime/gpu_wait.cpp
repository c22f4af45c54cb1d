// The thread stays awake, as CUDA's own waits do: a step's end is waited for in microseconds.
#include "runtime/gpu_wait.h"

#include <sched.h>

namespace weft::runtime {
namespace {

constexpr int kTriesBetweenPolls = 64;

}  // namespace

void wait_beside(std::span<parallel::Communicator* const> groups,
                 const std::function<bool()>& happened) {
  for (int tries = 1; !happened(); ++tries) {
    if (tries % kTriesBetweenPolls != 0) continue;
    for (parallel::Communicator* group : groups) group->poll();
    sched_yield();
  }
}

GpuWait::GpuWait(std::initializer_list<parallel::Communicator*> groups) {
  for (parallel::Communicator* group : groups)
    if (group->size() > 1) groups_.push_back(group);
}

void GpuWait::until(const kernels::GpuEvent& event) const {
  if (groups_.empty()) return event.synchronise();
  wait_beside(groups_, [&] { return event.happened(); });
}

void GpuWait::until_idle(kernels::CudaStream stream) {
  idle_.record(stream);
  until(idle_);
}

}  // namespace weft::runtime
