// The words' way: sent from registers into every peer's half, awaited in one's own.
#include "kernels/gpu_peer_reduce.h"

#include <algorithm>

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_launch.cuh"
#include "kernels/gpu_norm_row.cuh"
#include "kernels/gpu_tree_sum.cuh"

namespace weft::kernels {
namespace {

constexpr int kThreads = kNormThreads;
// Few, since a waiting block holds its place: 28 send one token of 7168 floats, a word a thread.
constexpr size_t kMostBlocks = 32;
constexpr size_t kLineBytes = 128;        // of the L2
constexpr unsigned kTriesPerLook = 2048;  // at the abort word, which lies across PCIe
static_assert(kThreads == kPeerWordsCleared);

struct alignas(16) Word {
  uint64_t low, high;  // data | epoch << 32
};

template <class D>
struct alignas(8) Payload {
  static constexpr size_t kElements = kPeerPayloadBytes / sizeof(D);
  D element[kElements];
};

// Halves of a word are written and read whole; nothing orders them, nor words among each other.
__device__ inline void put(Word* to, uint2 data, uint32_t epoch) {
  const uint64_t stamp = static_cast<uint64_t>(epoch) << 32;
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(data.x | stamp),
               "l"(data.y | stamp)
               : "memory");
}

__device__ inline Word look(const Word* at) {
  Word word;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(word.low), "=l"(word.high)
               : "l"(at)
               : "memory");
  return word;
}

__device__ inline bool has_come(const Word& word, uint32_t epoch) {
  return static_cast<uint32_t>(word.low >> 32) == epoch &&
         static_cast<uint32_t>(word.high >> 32) == epoch;
}

// One thread's view of an operation.
struct Exchange {
  const PeerGroup& group;
  uint32_t epoch;
  bool aborted = false;

  __device__ Word* half_of(int rank) const {
    return static_cast<Word*>(group.memory[rank]) + (epoch & 1) * group.half_words;
  }

  // `word` is what was seen at `at` before.
  __device__ uint2 await(Word word, const Word* at) {
    for (unsigned tries = 1; !has_come(word, epoch) && !aborted; ++tries) {
      if (tries % kTriesPerLook == 0)
        aborted = *static_cast<const volatile uint32_t*>(group.abort) != 0;
      word = look(at);
    }
    return {static_cast<uint32_t>(word.low), static_cast<uint32_t>(word.high)};
  }

  // To the same place in every peer's half, nearest rank first so that none is everyone's first.
  __device__ void send_to_all(size_t place, uint2 data) const {
#pragma unroll
    for (int step = 1; step < kMostPeers; ++step) {
      if (step >= group.ranks) break;
      put(half_of((group.rank + step) % group.ranks) + place, data, epoch);
    }
  }

  // The sum of one's own payload and of the words at `slots` + r · stride, each rank's.
  template <class D>
  __device__ Payload<D> sum(const Word* slots, size_t stride, const Payload<D>& mine) {
    Word words[kMostPeers];
#pragma unroll
    for (int r = 0; r < kMostPeers; ++r)
      if (r < group.ranks && r != group.rank) words[r] = look(slots + r * stride);
    TreeSum<kMostPeers> sums[Payload<D>::kElements];
#pragma unroll
    for (int r = 0; r < kMostPeers; ++r) {
      if (r >= group.ranks) break;
      Payload<D> part = mine;
      if (r != group.rank)
        part = __builtin_bit_cast(Payload<D>, await(words[r], slots + r * stride));
#pragma unroll
      for (size_t e = 0; e < Payload<D>::kElements; ++e) sums[e].add(r, widen(part.element[e]));
    }
    Payload<D> total;
#pragma unroll
    for (size_t e = 0; e < Payload<D>::kElements; ++e)
      total.element[e] = narrow<D>(sums[e].total(group.ranks));
    return total;
  }
};

// The last word of a message may be part of one.
template <class D>
__device__ inline Payload<D> load_payload(const D* from, size_t word, size_t n) {
  Payload<D> payload;
#pragma unroll
  for (size_t e = 0; e < Payload<D>::kElements; ++e) {
    const size_t i = word * Payload<D>::kElements + e;
    payload.element[e] = i < n ? from[i] : narrow<D>(0.0f);
  }
  return payload;
}

template <class D>
__device__ inline uint2 bits(const Payload<D>& payload) {
  return __builtin_bit_cast(uint2, payload);
}

// Where sums go: back to where the summands lay.
template <class D>
struct StoreSum {
  D* data;
  struct Rows {
    __device__ explicit Rows(const StoreSum&) {}
    __device__ void end(PeerState*, size_t, size_t) {}
  };
  __device__ void operator()(size_t i, D sum) const { data[i] = sum; }
};

// Or into the residual stream.
template <class T, bool kNorm>
struct JoinResidual {
  T* residual;
  In bias;
  In norm_weight;
  Out normed;
  float eps;
  size_t hidden;

  __device__ void operator()(size_t i, float sum) const {
    if (bias.data != nullptr) sum = __fadd_rn(sum, load_float(bias.data, bias.dtype, i % hidden));
    residual[i] = narrow<T>(__fadd_rn(widen(residual[i]), sum));
  }

  // The block that adds the last elements of a row normalises it. The weight is on its way to the
  // L2 by then: no kernel writes it, so that may begin before the kernel before has ended.
  struct Rows {
    const JoinResidual& join;

    __device__ explicit Rows(const JoinResidual& to) : join(to) {
      const auto* weight = static_cast<const char*>(to.norm_weight.data);
      const size_t bytes = to.hidden * (to.norm_weight.dtype == DType::f32 ? 4 : 2);
      for (size_t i = threadIdx.x * kLineBytes; i < bytes; i += kThreads * kLineBytes)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(weight + i));
    }

    __device__ void end(PeerState* state, size_t begin, size_t end) {
      __shared__ float warp_sums[4];
      __shared__ bool whole;
      __syncthreads();
      for (size_t row = begin / join.hidden; row * join.hidden < end; ++row) {
        const size_t from = max(begin, row * join.hidden), to = min(end, (row + 1) * join.hidden);
        if (threadIdx.x == 0) {
          const auto added = static_cast<uint32_t>(to - from);
          __threadfence();
          whole = atomicAdd(&state->row_elements[row], added) + added == join.hidden;
          __threadfence();
          if (whole) state->row_elements[row] = 0;
        }
        __syncthreads();
        if (whole)
          norm_row(join.residual + row * join.hidden, NormWeight<T>(join.norm_weight, join.hidden),
                   join.normed, row * join.hidden, join.hidden, join.eps, warp_sums);
        __syncthreads();
      }
    }
  };
};

template <class T>
struct JoinResidual<T, false> : JoinResidual<T, true> {
  struct Rows {
    __device__ explicit Rows(const JoinResidual&) {}
    __device__ void end(PeerState*, size_t, size_t) {}
  };
};

// The words that a block of the grid sees to, of `n`: a run, so that it touches few rows.
struct Run {
  size_t begin, end;
  __device__ explicit Run(size_t n) {
    const size_t length = (n + gridDim.x - 1) / gridDim.x;
    begin = min(n, blockIdx.x * length);
    end = min(n, begin + length);
  }
};

// Once all blocks are here nobody reads the half any more, and peers write it again only after this
// rank's next operation has begun. A few words of it are cleared each time, so that none keeps a
// stamp until epochs come round again.
__device__ inline void end_operation(const Exchange& exchange) {
  __shared__ bool last;
  const PeerGroup& group = exchange.group;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&group.state->blocks_done, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  const size_t turn = exchange.epoch / 2 % (group.half_words / kThreads);
  exchange.half_of(group.rank)[turn * kThreads + threadIdx.x] = {};
  if (threadIdx.x > 0) return;
  group.state->blocks_done = 0;
  group.state->epoch = exchange.epoch;
}

template <class D, class Finish>
__device__ inline void finish_word(const Finish& finish, size_t word, size_t n,
                                   const Payload<D>& sum) {
#pragma unroll
  for (size_t e = 0; e < Payload<D>::kElements; ++e) {
    const size_t i = word * Payload<D>::kElements + e;
    if (i < n) finish(i, sum.element[e]);
  }
}

// Slots: [ranks, words].
template <class D, class Finish, class Rows>
__device__ inline void reduce_in_one(Exchange& exchange, const D* in, size_t n, size_t words,
                                     const Finish& finish, Rows& rows) {
  constexpr size_t kElements = Payload<D>::kElements;
  const PeerGroup& group = exchange.group;
  const Run run(words);
  for (size_t w = run.begin + threadIdx.x; w < run.end; w += kThreads)
    exchange.send_to_all(group.rank * words + w, bits(load_payload(in, w, n)));
  const Word* slots = exchange.half_of(group.rank);
  for (size_t w = run.begin + threadIdx.x; w < run.end; w += kThreads)
    finish_word(finish, w, n, exchange.sum(slots + w, words, load_payload(in, w, n)));
  rows.end(group.state, run.begin * kElements, min(n, run.end * kElements));
}

// Slots: [ranks, part], each rank's words of this rank's part; behind them sums: [ranks, part].
template <class D, class Finish, class Rows>
__device__ inline void reduce_in_two(Exchange& exchange, const D* in, size_t n, size_t words,
                                     const Finish& finish, Rows& rows) {
  constexpr size_t kElements = Payload<D>::kElements;
  const PeerGroup& group = exchange.group;
  const size_t part = (words + group.ranks - 1) / group.ranks;
  const Run run(part);
  for (int step = 1; step < group.ranks; ++step) {
    const int to = (group.rank + step) % group.ranks;
    Word* slot = exchange.half_of(to) + group.rank * part;
    for (size_t w = run.begin + threadIdx.x; w < run.end && to * part + w < words; w += kThreads)
      put(slot + w, bits(load_payload(in, to * part + w, n)), exchange.epoch);
  }
  const Word* slots = exchange.half_of(group.rank);
  const size_t sums = group.ranks * part;
  const size_t mine = group.rank * part;
  for (size_t w = run.begin + threadIdx.x; w < run.end && mine + w < words; w += kThreads) {
    const Payload<D> sum = exchange.sum(slots + w, part, load_payload(in, mine + w, n));
    exchange.send_to_all(sums + mine + w, bits(sum));
    finish_word(finish, mine + w, n, sum);
  }
  for (int step = 1; step < group.ranks; ++step) {
    const size_t first = (group.rank + step) % group.ranks * part;
    for (size_t w = run.begin + threadIdx.x; w < run.end && first + w < words; w += kThreads) {
      const Word* at = slots + sums + first + w;
      finish_word(finish, first + w, n,
                  __builtin_bit_cast(Payload<D>, exchange.await(look(at), at)));
    }
  }
  for (int r = 0; r < group.ranks; ++r) {
    const size_t begin = min(n, (r * part + run.begin) * kElements);
    rows.end(group.state, begin, min(n, (r * part + run.end) * kElements));
  }
}

template <class D, class Finish>
__global__ __launch_bounds__(kThreads, 4) void peer_reduce(const __grid_constant__ PeerGroup group,
                                                           const D* in, size_t n, bool two_shot,
                                                           const __grid_constant__ Finish finish) {
  typename Finish::Rows rows(finish);
  cudaGridDependencySynchronize();
  // Not before: a chain of sums would fill the GPU with blocks that wait for each other in turn.
  cudaTriggerProgrammaticLaunchCompletion();
  const uint32_t next = __ldcg(&group.state->epoch) + 1;
  Exchange exchange{group, next == 0 ? 2 : next};  // 0 is what clear words have
  const size_t words = (n + Payload<D>::kElements - 1) / Payload<D>::kElements;
  if (two_shot)
    reduce_in_two(exchange, in, n, words, finish, rows);
  else
    reduce_in_one(exchange, in, n, words, finish, rows);
  end_operation(exchange);
}

template <class D, class Finish>
void launch_reduce(const PeerGroup& group, const D* in, size_t n, bool two_shot, bool dependent,
                   const Finish& finish, CUstream_st* stream) {
  const size_t words = peer_words(n * sizeof(D));
  const size_t spread = two_shot ? (words + group.ranks - 1) / group.ranks : words;
  LaunchShape shape;
  shape.grid =
      static_cast<unsigned>(std::clamp<size_t>((spread + kThreads - 1) / kThreads, 1, kMostBlocks));
  shape.block = kThreads;
  shape.dependent = dependent;
  launch("peer_reduce", peer_reduce<D, Finish>, shape, stream, group, in, n, two_shot, finish);
}

}  // namespace

void gpu_peer_sum(const GpuPeerSum& a, CUstream_st* stream) {
  if (a.n == 0 || a.group.ranks == 1) return;
  with_gpu_type(a.data.dtype, [&](auto type) {
    using D = decltype(type);
    D* data = static_cast<D*>(a.data.data);
    launch_reduce(a.group, static_cast<const D*>(data), a.n, a.two_shot, a.dependent_launch,
                  StoreSum<D>{data}, stream);
  });
}

void gpu_peer_residual(const GpuPeerResidual& a, CUstream_st* stream) {
  const size_t n = a.tokens * a.hidden;
  if (n == 0) return;
  with_gpu_type(a.residual.dtype, [&](auto type) {
    using T = decltype(type);
    const JoinResidual<T, true> with_norm{
        static_cast<T*>(a.residual.data), a.bias, a.norm_weight, a.normed, a.eps, a.hidden};
    const JoinResidual<T, false> without{with_norm};
    if (a.norm_weight)
      launch_reduce(a.group, a.partial, n, a.two_shot, a.dependent_launch, with_norm, stream);
    else
      launch_reduce(a.group, a.partial, n, a.two_shot, a.dependent_launch, without, stream);
  });
}

}  // namespace weft::kernels
