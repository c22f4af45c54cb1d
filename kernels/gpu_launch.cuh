// Launches: with the kernel before still running where that is asked for, in clusters, and always
// with the same split of an SM's memory, since a kernel that wants another split waits for the SM
// to be empty.
#pragma once

#include <cuda_runtime.h>

#include <tuple>

#include "kernels/cuda_check.h"

namespace weft::kernels {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks, along y
  bool dependent = false;
};

// `args` are the addresses of the kernel's arguments. `name` stands in the error.
inline void launch(const char* name, const void* kernel, const LaunchShape& shape, void** args,
                   cudaStream_t stream) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        name);
  if (shape.shared_bytes > 48 * 1024)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          name);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = shape.dependent;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = 1;
  attributes[1].val.clusterDim.y = shape.cluster;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  check(cudaLaunchKernelExC(&config, kernel, args), name);
}

template <class... Formal, class... Args>
void launch(const char* name, void (*kernel)(Formal...), const LaunchShape& shape,
            cudaStream_t stream, Args... args) {
  std::tuple<Formal...> values(args...);
  std::apply(
      [&](auto&... each) {
        void* addresses[] = {static_cast<void*>(&each)...};
        launch(name, reinterpret_cast<const void*>(kernel), shape, addresses, stream);
      },
      values);
}

}  // namespace weft::kernels
