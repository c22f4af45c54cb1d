// Bytes and operations of kernels, from shapes alone.
#include <fmt/format.h>

#include "launch/kernel_set.h"

namespace weft::launch {

std::string KernelWork::name() const {
  return prefill ? fmt::format("prefill {}", tokens)
                 : fmt::format("batch {}, context {}", batch, tokens);
}

ProductSize product_size(const KernelShapes& s, KernelOp op) {
  switch (op) {
    case KernelOp::qkv:
      return {s.qkv_width(), s.spec.hidden};
    case KernelOp::o:
      return {s.spec.hidden, s.head_columns()};
    case KernelOp::gate_up:
      return {2 * s.shard.ffn.size(), s.spec.hidden};
    case KernelOp::down:
      return {s.spec.hidden, s.shard.ffn.size()};
    case KernelOp::head:
      return {s.shard.vocab.size(), s.spec.hidden};
    default:
      return {};
  }
}

double kernel_bytes(const KernelShapes& s, KernelOp op, const KernelWork& work) {
  const auto each = static_cast<double>(dtype_bytes(s.spec.dtype));
  const auto rows = static_cast<double>(work.rows()), hidden = static_cast<double>(s.spec.hidden);
  const auto sampled = static_cast<double>(work.sampled());
  const auto vocab = static_cast<double>(s.shard.vocab.size());
  const auto ffn = static_cast<double>(s.shard.ffn.size());
  const auto width = static_cast<double>(s.qkv_width());
  const auto [outputs, inputs] = product_size(s, op);
  const auto n = static_cast<double>(outputs), k = static_cast<double>(inputs);
  switch (op) {
    case KernelOp::embedding:
      return 2 * rows * hidden * each;
    case KernelOp::norm:
      return (2 * rows + 1) * hidden * each;
    case KernelOp::rope:
      return 2 * rows * width * each;
    case KernelOp::attention: {
      const auto pair = static_cast<double>(2 * s.shard.kv_heads.size() * s.spec.head_dim) * each;
      const auto cached =
          static_cast<double>(work.prefill ? work.tokens : work.batch * work.tokens);
      return cached * pair + 2 * rows * static_cast<double>(s.head_columns()) * each;
    }
    case KernelOp::swiglu:
      return 3 * rows * ffn * each;
    case KernelOp::residual:
      return rows * hidden * (sizeof(float) + 2 * each);
    case KernelOp::sampling:
      return sampled * vocab * sizeof(float);
    case KernelOp::head:
      return n * k * each + sampled * (k * each + n * sizeof(float));
    case KernelOp::gate_up:
      return n * k * each + rows * (k + ffn) * each;
    default:
      return n * k * each + rows * (k + n) * each;
  }
}

double kernel_flops(const KernelShapes& s, KernelOp op, const KernelWork& work) {
  if (op == KernelOp::attention) {
    const auto tokens = static_cast<double>(work.tokens);
    const double pairs =
        work.prefill ? tokens * (tokens + 1) / 2 : static_cast<double>(work.batch) * tokens;
    return 4 * pairs * static_cast<double>(s.head_columns());
  }
  const auto [outputs, inputs] = product_size(s, op);
  const size_t rows = op == KernelOp::head ? work.sampled() : work.rows();
  return 2 * static_cast<double>(rows) * static_cast<double>(outputs) * static_cast<double>(inputs);
}

}  // namespace weft::launch
