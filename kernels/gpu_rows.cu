// One block a row; tables an entry a thread.
#include "kernels/gpu_rows.h"

#include "kernels/cuda_check.h"

namespace weft::kernels {
namespace {

constexpr int kThreads = 256;

// One block a row, in pieces of the largest type that its bytes divide into.
template <class Piece>
__global__ void gather(const Piece* x, const int32_t* row, Piece* y, size_t pieces) {
  const int32_t from = row[blockIdx.x];
  Piece* to = y + blockIdx.x * pieces;
  for (size_t i = threadIdx.x; i < pieces; i += kThreads)
    to[i] = from < 0 ? Piece{} : x[static_cast<size_t>(from) * pieces + i];
}

__global__ void write_table(int32_t* table, const GpuTableEntry* entries, size_t n) {
  const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) table[entries[i].place] = entries[i].value;
}

}  // namespace

void gpu_gather_rows(const GpuGatherRows& a, CudaStream stream) {
  if (a.rows == 0) return;
  const auto blocks = static_cast<unsigned>(a.rows);
  const size_t bytes = a.width * dtype_bytes(a.x.dtype);
  const bool aligned = reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(a.y.data) % 16 == 0;
  if (bytes % 16 == 0 && aligned)
    gather<<<blocks, kThreads, 0, stream>>>(a.x.as<uint4>(), a.row, a.y.as<uint4>(), bytes / 16);
  else
    gather<<<blocks, kThreads, 0, stream>>>(a.x.as<uint16_t>(), a.row, a.y.as<uint16_t>(),
                                            bytes / 2);
  check(cudaGetLastError(), "gpu_gather_rows");
}

void gpu_write_table(int32_t* table, const GpuTableEntry* entries, size_t n, CudaStream stream) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
  write_table<<<blocks, kThreads, 0, stream>>>(table, entries, n);
  check(cudaGetLastError(), "gpu_write_table");
}

}  // namespace weft::kernels
