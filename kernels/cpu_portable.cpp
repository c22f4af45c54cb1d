// The inner loops for plain C++.
#include "kernels/simd_portable.h"

#include "kernels/cpu_isa.h"
#include "kernels/cpu_softmax.h"

namespace weft::kernels {

const CpuKernels& portable_kernels() {
  static constexpr CpuKernels kTable = cpu_table<Portable>("portable");
  return kTable;
}

}  // namespace weft::kernels
