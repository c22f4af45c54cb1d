// Processors other than x86-64 run the portable inner loops.
#include "kernels/cpu_isa.h"

namespace weft::kernels {

std::span<const CpuKernels* const> usable_cpu_kernels() {
  static const CpuKernels* const kOnly[] = {&portable_kernels()};
  return kOnly;
}

}  // namespace weft::kernels
