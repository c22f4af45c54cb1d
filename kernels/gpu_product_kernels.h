// The streaming kernel's instances, one file of them a dtype.
#pragma once

#include <cstddef>

namespace weft::kernels {

enum class StreamMode;

// Null where there is no such instance.
const void* stream_kernel_bf16(size_t group_tokens, size_t tiles_at_once, size_t parts,
                               StreamMode mode);
const void* stream_kernel_f16(size_t group_tokens, size_t tiles_at_once, size_t parts,
                              StreamMode mode);

}  // namespace weft::kernels
