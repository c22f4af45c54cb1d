// The tables of the instruction sets that this build has.
#pragma once

#include "kernels/cpu_kernels.h"

namespace weft::kernels {

const CpuKernels& portable_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();

}  // namespace weft::kernels
