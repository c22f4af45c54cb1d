// Which kernel takes which rows.
#include "kernels/gpu_attention.h"

#include "kernels/gpu_attention_kernels.cuh"

namespace weft::kernels {
namespace {

using namespace gpu;

void check_shapes(const GpuAttention& a) {
  expect(a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0 && a.head_dim > 0,
         "gpu_attention: n_kv_heads must divide n_heads");
  expect(a.q.dtype == a.out.dtype && a.q.dtype == a.cache.key && a.q.dtype == a.cache.value,
         "gpu_attention: q, out and the cache must have one dtype");
  expect(a.q_stride >= a.n_heads * a.head_dim && a.scale > 0,
         "gpu_attention: q_stride must hold a row and scale be positive");
}

// 16-byte copies from the cache, 4-byte reads of q.
bool suits_tensor_cores(const GpuAttention& a) {
  const bool dim = a.head_dim == 64 || a.head_dim == 96 || a.head_dim == 128;
  const auto base = reinterpret_cast<uintptr_t>(a.cache.base);
  return dim && a.q.dtype != DType::f32 && a.q_stride % 2 == 0 && base % 16 == 0 &&
         a.cache.block_stride % 16 == 0 && a.cache.value_offset % 16 == 0 &&
         a.cache.key_head_stride % 16 == 0 && a.cache.value_head_stride % 16 == 0;
}

// Else tiles are left to mma.sync.
bool suits_wgmma(const GpuAttention& a) {
  const auto q = reinterpret_cast<uintptr_t>(a.q.data),
             out = reinterpret_cast<uintptr_t>(a.out.data);
  const bool dim = a.head_dim == 64 || a.head_dim == 128;
  return suits_tensor_cores(a) && dim && q % 16 == 0 && a.q_stride % 8 == 0 && out % 4 == 0;
}

}  // namespace

size_t gpu_attention_workspace_bytes(size_t n_single, size_t positions, size_t n_heads,
                                     size_t head_dim) {
  // Parts of kSoftmaxSpan, two cut ones a row; shorter parts are taken only while they are few.
  const size_t parts = positions / kSoftmaxSpan + 2 * n_single + 1024;
  return kDecodeHeaderBytes + parts * n_heads * (head_dim + 4) * sizeof(float);
}

bool gpu_attention_rotates(const GpuAttention& a) {
  return suits_tensor_cores(a) && a.n_tiles == 0 &&
         a.q_stride >= (a.n_heads + 2 * a.n_kv_heads) * a.head_dim;
}

bool gpu_attention_rotates_tiles(const GpuAttention& a) {
  return suits_wgmma(a) && !a.invariant && a.n_tiles > 0 && a.n_single == 0;
}

void gpu_attention(const GpuAttention& a, CudaStream stream) {
  check_shapes(a);
  expect(a.tile_rope == nullptr || gpu_attention_rotates_tiles(a),
         "gpu_attention: tiles that these kernels cannot rotate");
  expect(a.rope == nullptr || gpu_attention_rotates(a),
         "gpu_attention: rows that these kernels cannot rotate");
  if (a.n_single == 0 && a.n_tiles == 0) return;
  if (!suits_tensor_cores(a)) return attention_plain(a, stream);
  if (a.n_single > 0) attention_decode(a, stream);
  if (a.n_tiles == 0) return;
  if (!a.invariant && suits_wgmma(a) && attention_prefill_wgmma(a, stream)) return;
  expect(a.tile_rope == nullptr, "gpu_attention: the driver maps none of the cache");
  attention_prefill(a, stream);
}

}  // namespace weft::kernels
