// SwiGLU on the CPU, in float from loads to the one rounding of the store.
#include "kernels/swiglu.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu_kernels.h"

namespace weft::kernels {
namespace {

void oracle(const SwiGlu& a) {
  with_float_type(a.gate_up.dtype, [&](auto in_type) {
    with_float_type(a.out.dtype, [&](auto out_type) {
      using Y = decltype(out_type);
      for (size_t t = 0; t < a.tokens; ++t) {
        const auto* gate = a.gate_up.as<decltype(in_type)>() + t * 2 * a.ffn;
        for (size_t i = 0; i < a.ffn; ++i) {
          const double g = to_float(gate[i]);
          const double y = g / (1 + std::exp(-g)) * to_float(gate[a.ffn + i]);
          a.out.as<Y>()[t * a.ffn + i] = from_float<Y>(static_cast<float>(y));
        }
      }
    });
  });
}

}  // namespace

void swiglu_with(const CpuKernels& cpu, const SwiGlu& a, Stream& stream) {
  if (a.tokens == 0 || a.ffn == 0) return;
  constexpr size_t kBlock = 512;
  const auto widen = cpu.widen[dtype_slot(a.gate_up.dtype)];
  const size_t in_bytes = dtype_bytes(a.gate_up.dtype), out_bytes = dtype_bytes(a.out.dtype);
  const size_t blocks = (a.ffn + kBlock - 1) / kBlock;
  stream.pool().split(a.tokens * blocks, kElementwiseWork / kBlock, [&](size_t begin, size_t end) {
    alignas(64) float gate[kBlock];
    alignas(64) float up[kBlock];
    for (size_t item = begin; item < end; ++item) {
      const size_t t = item / blocks, i = item % blocks * kBlock;
      const size_t n = std::min(kBlock, a.ffn - i), padded = round_up(n, kLanes);
      const std::byte* from = a.gate_up.as<std::byte>() + (t * 2 * a.ffn + i) * in_bytes;
      widen(from, gate, n, padded);
      widen(from + a.ffn * in_bytes, up, n, padded);
      cpu.silu_mul(gate, up, padded);
      convert(gate, DType::f32, a.out.as<std::byte>() + (t * a.ffn + i) * out_bytes, a.out.dtype,
              n);
    }
  });
}

template <class Acc>
void swiglu(const SwiGlu& args, Stream& stream) {
  if constexpr (std::is_same_v<Acc, double>)
    oracle(args);
  else
    swiglu_with(best_cpu_kernels(), args, stream);
}

template void swiglu<float>(const SwiGlu& args, Stream& stream);
template void swiglu<double>(const SwiGlu& args, Stream& stream);

}  // namespace weft::kernels
