// The inner loops for AVX2, FMA and F16C; the only file compiled for them.
#include "kernels/simd_avx2.h"

#include "kernels/cpu_isa.h"
#include "kernels/cpu_softmax.h"

namespace weft::kernels {

const CpuKernels& avx2_kernels() {
  static constexpr CpuKernels kTable = cpu_table<Avx2>("avx2");
  return kTable;
}

}  // namespace weft::kernels
