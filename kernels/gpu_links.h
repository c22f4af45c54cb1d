// What measuring links takes on a GPU: numbers whose sums are exact (kernels/link_pattern.h), and a
// copy that the multiprocessors make, beside the one that the copy engines make (copy_bytes).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu_device.h"
#include "kernels/link_pattern.h"

namespace weft::kernels {

void gpu_fill_pattern(const LinkPattern& args, CudaStream stream);
// Adds the number of elements that differ to *n_wrong, which lies on the GPU.
void gpu_count_wrong(const LinkPattern& args, uint64_t* n_wrong, CudaStream stream);
// Either side may be another GPU's memory, mapped here; both at a multiple of 16 bytes.
void gpu_copy_by_kernel(void* to, const void* from, size_t bytes, CudaStream stream);

}  // namespace weft::kernels
