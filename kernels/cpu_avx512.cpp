// The inner loops for AVX-512; the only file compiled for it.
#include "kernels/simd_avx512.h"

#include "kernels/cpu_isa.h"
#include "kernels/cpu_softmax.h"

namespace weft::kernels {

const CpuKernels& avx512_kernels() {
  static constexpr CpuKernels kTable = cpu_table<Avx512>("avx512");
  return kTable;
}

}  // namespace weft::kernels
