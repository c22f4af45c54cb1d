// A rank's waits for its GPU. A kernel that waits for a peer which has failed never ends by itself,
// and a group tells of the failure only to who asks: so every wait asks its groups meanwhile.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kernels/gpu_device.h"
#include "parallel/communicator.h"

namespace weft::runtime {

// Returns once `happened` says so; asks the groups now and then. Throws Error where one has failed.
void wait_beside(std::span<parallel::Communicator* const> groups,
                 const std::function<bool()>& happened);

class GpuWait {
 public:
  // Groups of one rank are left out: nobody there can fail. The others outlive this.
  explicit GpuWait(std::initializer_list<parallel::Communicator*> groups);

  // Both throw Error where the GPU or a group has failed.
  void until(const kernels::GpuEvent& event) const;
  void until_idle(kernels::CudaStream stream);

 private:
  std::vector<parallel::Communicator*> groups_;
  kernels::GpuEvent idle_;
};

}  // namespace weft::runtime
