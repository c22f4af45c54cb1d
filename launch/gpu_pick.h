// Which of a host's GPUs a rank takes, from what CUDA says of them; apart from the machine, so that
// any machine can be thought up.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernels/gpu_devices.h"

namespace weft::launch {

struct RankOnHost {
  std::string bus_id;  // of the GPU that its place gives it; empty: it has no place
  size_t rank = 0;     // among the host's
  size_t size = 1;
};

// The index in `query`: the place's GPU, else round them. `built`: the capabilities that there is
// code for. Throws Error where there is none, none with code, or more ranks than GPUs without
// `shares`.
size_t pick_gpu(const kernels::GpuQuery& query, std::span<const std::string> built,
                const RankOnHost& rank, bool shares);

}  // namespace weft::launch
