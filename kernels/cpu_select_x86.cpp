// Which sets of inner loops an x86-64 processor can run.
#include "kernels/cpu_isa.h"

namespace weft::kernels {

std::span<const CpuKernels* const> usable_cpu_kernels() {
  static const CpuKernels* const kFastestFirst[] = {&avx512_kernels(), &avx2_kernels(),
                                                    &portable_kernels()};
  const std::span<const CpuKernels* const> all(kFastestFirst);
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return all.subspan(avx512 ? 0 : avx2 ? 1 : 2);
}

}  // namespace weft::kernels
