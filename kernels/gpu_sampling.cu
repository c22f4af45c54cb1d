// Sampling on the GPU. Greedy rows alone: the whole GPU looks for the largest logit. Otherwise one
// block a row, which passes over the row's logits a fixed number of times: cuts are found by
// searching for the threshold of logits, four bits a pass, by sums of integers, so no order of
// additions shows. Noise and weights have the CPU's bits (kernels/gumbel.h, kernels/cpu_softmax.h).
#include "kernels/gpu_sampling.h"

#include "kernels/gpu_attention_launch.cuh"

namespace weft::kernels {
namespace {

using namespace gpu;
using Key = unsigned long long;

constexpr int kThreads = 1024;
constexpr int kGreedyThreads = 256;
constexpr int kGreedyEach = 8;
constexpr uint32_t kAll = ~0u;

// Orders floats as unsigned integers; −0 counts as 0.
__device__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Larger logit first, then lower id. Never 0 for what may be chosen.
__device__ Key key_of(float logit, uint32_t id) { return Key{ordered(logit)} << 32 | (~id & kAll); }
__device__ uint32_t id_of(Key key) { return ~static_cast<uint32_t>(key); }

__device__ float logit_at(const GpuSample& a, size_t row, uint32_t id) {
  const auto shard_vocab = static_cast<uint32_t>(a.shard_vocab);
  const uint32_t shard = id / shard_vocab;
  return a.logits[(shard * a.rows + row) * a.shard_vocab + (id - shard * shard_vocab)];
}

// The same value in every thread of a block. Two barriers; `shared` has an element a warp.
template <class V, class F>
__device__ V block_reduce(V value, V* shared, F&& join) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = join(value, __shfl_xor_sync(kAll, value, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) value = join(value, shared[w]);
  return value;
}
__device__ Key block_max(Key value, Key* shared) {
  return block_reduce(value, shared, [](Key a, Key b) { return a > b ? a : b; });
}
__device__ Key block_sum(Key value, Key* shared) {
  return block_reduce(value, shared, [](Key a, Key b) { return a + b; });
}

__device__ void put_token(const GpuSample& a, size_t row, uint32_t token, uint32_t not_bad) {
  const bool fine = not_bad == 0;
  const auto id = static_cast<int32_t>(fine ? token : 0);
  a.token[row] = id;
  if (a.token_host != nullptr) a.token_host[row] = id;
  if (a.bad != nullptr) a.bad[row] = fine ? -1 : static_cast<int32_t>(~not_bad);
}

// What blocks of one row have found so far. A bad id is kept as its complement, so that 0 = none.
struct GreedyCell {
  Key best;
  uint32_t bad;
  uint32_t blocks;
};

__global__ void __launch_bounds__(kGreedyThreads)
    greedy_kernel(const __grid_constant__ GpuSample a) {
  __shared__ Key shared[kGreedyThreads / 32];
  wait_for_kernel_before();
  const size_t row = blockIdx.y;
  const auto vocab = static_cast<uint32_t>(a.vocab);
  const uint32_t first = blockIdx.x * kGreedyThreads * kGreedyEach + threadIdx.x;
  float logit[kGreedyEach];
#pragma unroll
  for (int i = 0; i < kGreedyEach; ++i) {
    const uint32_t id = first + i * kGreedyThreads;
    logit[i] = id < vocab ? logit_at(a, row, id) : -INFINITY;
  }
  Key best = 0;
  uint32_t bad = 0;
#pragma unroll
  for (int i = 0; i < kGreedyEach; ++i) {
    const uint32_t id = first + i * kGreedyThreads;
    if (id >= vocab) continue;
    if (!(logit[i] < INFINITY)) bad = max(bad, ~id);
    best = max(best, key_of(logit[i], id));
  }
  best = block_max(best, shared);
  bad = static_cast<uint32_t>(block_max(bad, shared));
  if (threadIdx.x != 0) return;

  auto& cell = reinterpret_cast<GreedyCell*>(a.workspace)[row];
  atomicMax(&cell.best, best);
  if (bad != 0) atomicMax(&cell.bad, bad);
  __threadfence();
  if (atomicAdd(&cell.blocks, 1) != gridDim.x - 1) return;
  __threadfence();
  best = atomicExch(&cell.best, 0);
  bad = atomicExch(&cell.bad, 0);
  atomicExch(&cell.blocks, 0);
  put_token(a, row, id_of(best), bad);
}

// kernels/cpu_softmax.h, operation by operation.
__device__ float cpu_exp(float x) {
  x = 89.0f < x ? 89.0f : x;
  x = -110.0f > x ? -110.0f : x;
  const float round_to_integer = 0x1.8p23f;
  const float magic = __fmaf_rn(x, 0x1.715476p0f, round_to_integer);
  const float n = __fsub_rn(magic, round_to_integer);
  float r = __fmaf_rn(n, -0x1.62e430p-1f, x);
  r = __fmaf_rn(n, 0x1.05c610p-29f, r);
  float q = __fmaf_rn(0x1.6d110ap-10f, r, 0x1.120b6ep-7f);
  q = __fmaf_rn(q, r, 0x1.55551ap-5f);
  q = __fmaf_rn(q, r, 0x1.5554dcp-3f);
  q = __fmaf_rn(q, r, 0.5f);
  const float tail = __fmaf_rn(__fmul_rn(r, r), q, r);
  const int power = __float_as_int(magic) - 0x4b400000;
  const float low = __int_as_float(((power >> 1) + 127) << 23);
  const float high = __int_as_float((power - (power >> 1) + 127) << 23);
  return __fmul_rn(__fmul_rn(__fadd_rn(1, tail), low), high);
}

// kernels/gumbel.h, operation by operation.
__device__ double plain_log(double x) {
  constexpr int64_t kSqrtHalf = 0x3fe6a09e667f3bcdll;
  const int64_t bits = __double_as_longlong(x);
  const int64_t e = (bits - kSqrtHalf) >> 52;
  const double m = __longlong_as_double(bits - e * (int64_t{1} << 52));
  const double s = __ddiv_rn(__dsub_rn(m, 1.0), __dadd_rn(m, 1.0));
  const double z = __dmul_rn(s, s);
  double series = 1.0 / 21;
#pragma unroll
  for (int i = 19; i >= 3; i -= 2) series = __dadd_rn(__dmul_rn(series, z), 1.0 / i);
  const double twice = __dmul_rn(2.0, s);
  const double log_m = __dadd_rn(twice, __dmul_rn(__dmul_rn(twice, z), series));
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const auto exponent = static_cast<double>(e);
  return __dadd_rn(__dmul_rn(exponent, kLn2High), __dadd_rn(__dmul_rn(exponent, kLn2Low), log_m));
}
constexpr double kMostGumbel = 17.4;

__device__ double gumbel(uint32_t word) {
  const double u = __dmul_rn(__dadd_rn(static_cast<double>(word >> 8), 0.5), 0x1p-24);
  return -plain_log(-plain_log(u));
}

__device__ uint4 philox(uint64_t key, uint32_t counter, uint32_t output_index) {
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint4 c = make_uint4(counter, 0, output_index, 0);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t even_high = __umulhi(0xD2511F53u, c.x), even_low = 0xD2511F53u * c.x;
    const uint32_t odd_high = __umulhi(0xCD9E8D57u, c.z), odd_low = 0xCD9E8D57u * c.z;
    c = make_uint4(odd_high ^ c.y ^ key0, odd_low, even_high ^ c.w ^ key1, even_low);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

__device__ double token_noise(uint64_t seed, uint32_t output_index, uint32_t id) {
  const uint4 words = philox(seed, id / 4, output_index);
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  return gumbel(word[id % 4]);
}

// What a block knows of its row.
struct RowState {
  Key reduce[kThreads / 32];
  double reduce_double[kThreads / 32];
  Key sums[kThreads / 32][16];
};

class Row {
 public:
  __device__ Row(const GpuSample& args, size_t row, RowState& state)
      : a_(args), row_(row), state_(state), vocab_(static_cast<uint32_t>(args.vocab)) {
    if (args.row != nullptr) given_ = args.row[row];
  }

  __device__ void run() {
    Key best = 0, bad = 0;
    each([&](uint32_t id) {
      const float logit = raw(id);
      if (!(logit < INFINITY)) bad = max(bad, Key{~id});
      best = max(best, key_of(penalised(logit, id), id));
    });
    best = block_max(best, state_.reduce);
    bad = block_max(bad, state_.reduce);
    uint32_t token = id_of(best);
    if (bad == 0) {
      most_ = penalised(raw(token), token);
      if (given_.params.temperature != 0 && !isinf(most_)) token = draw(token);
    }
    if (threadIdx.x == 0) put_token(a_, row_, token, static_cast<uint32_t>(bad));
    if (a_.logprob != nullptr || a_.n_top > 0) report(bad == 0 ? token : 0);
  }

 private:
  // Calls f(id) for the thread's own ids: four neighbours, which share a block of random words.
  template <class F>
  __device__ void each(F&& f) const {
    for (uint32_t base = threadIdx.x * 4; base < vocab_; base += kThreads * 4)
      for (uint32_t id = base; id < min(base + 4, vocab_); ++id) f(id);
  }

  __device__ float raw(uint32_t id) const { return logit_at(a_, row_, id); }

  __device__ float penalised(float logit, uint32_t id) const {
    const float penalty = given_.params.repetition_penalty;
    if (given_.seen == nullptr || penalty == 1 || given_.seen[id] == 0) return logit;
    return logit > 0 ? __fdiv_rn(logit, penalty) : __fmul_rn(logit, penalty);
  }

  // Logit relative to the largest, over the temperature.
  __device__ float scaled(uint32_t id) const {
    return __fdiv_rn(__fsub_rn(penalised(raw(id), id), most_), given_.params.temperature);
  }

  // The largest threshold t such that the weights of ids with value(id) >= t reach `need`, which is
  // at most the sum of all. `value` and `weight` are of integers.
  template <class V, class W>
  __device__ uint32_t threshold(Key need, V&& value, W&& weight) {
    uint32_t t = 0;
    for (int shift = 28; shift >= 0; shift -= 4) {
      Key sum[15] = {};
      each([&](uint32_t id) {
        const uint32_t v = value(id);
        if (v < t + (1u << shift)) return;
        const Key w = weight(id);
#pragma unroll
        for (uint32_t i = 0; i < 15; ++i)
          if (v >= t + ((i + 1) << shift)) sum[i] += w;
      });
      t += digit(sum, need) << shift;
    }
    return t;
  }

  // How many of the 15 sums over the block, which do not grow, reach `need`.
  __device__ uint32_t digit(Key (&sum)[15], Key need) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 15; ++i) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum[i] += __shfl_xor_sync(kAll, sum[i], step);
      if (threadIdx.x % 32 == 0) state_.sums[threadIdx.x / 32][i] = sum[i];
    }
    __syncthreads();
    bool reached = false;
    const unsigned i = threadIdx.x % 32;
    if (i < 15) {
      Key total = 0;
      for (int w = 0; w < kThreads / 32; ++w) total += state_.sums[w][i];
      reached = total >= need;
    }
    return static_cast<uint32_t>(__popc(__ballot_sync(kAll, reached)));
  }

  __device__ Key weight(uint32_t id) const {
    return static_cast<Key>(__fmul_rn(cpu_exp(scaled(id)), 0x1p40f));
  }

  // Ids that stay: scaled logit above `logit_`, or at it with an id of at most `last_`.
  __device__ bool stays(uint32_t id) const {
    const uint32_t v = ordered(scaled(id));
    return v > least_ || (v == least_ && id <= last_);
  }

  __device__ void cut() {
    const auto k = static_cast<uint32_t>(given_.params.top_k);
    if (k > 0 && k < vocab_)
      least_ = threshold(
          k, [&](uint32_t id) { return ordered(scaled(id)); }, [](uint32_t) { return Key{1}; });
    if (given_.params.top_p >= 1) return;

    Key total = 0;
    each([&](uint32_t id) { total += stays(id) ? weight(id) : 0; });
    total = block_sum(total, state_.reduce);
    const auto need = static_cast<Key>(
        ceil(__dmul_rn(static_cast<double>(total), static_cast<double>(given_.params.top_p))));
    const uint32_t cut_at = threshold(
        need, [&](uint32_t id) { return ordered(scaled(id)); },
        [&](uint32_t id) { return stays(id) ? weight(id) : 0; });
    // Of those at the threshold, as many of the lowest ids as are needed.
    Key above = 0, ties = 0, tie_weight = 0;
    each([&](uint32_t id) {
      const uint32_t v = ordered(scaled(id));
      if (v > cut_at) above += weight(id);
      if (v != cut_at) return;
      ++ties;
      tie_weight = weight(id);
    });
    above = block_sum(above, state_.reduce);
    ties = block_sum(ties, state_.reduce);
    tie_weight = block_max(tie_weight, state_.reduce);
    least_ = cut_at;
    const Key wanted =
        tie_weight == 0 || need <= above ? 1 : (need - above + tie_weight - 1) / tie_weight;
    if (wanted >= ties) return;
    last_ = ~threshold(
        wanted, [&](uint32_t id) { return ordered(scaled(id)) == cut_at ? ~id : 0; },
        [&](uint32_t id) { return Key{ordered(scaled(id)) == cut_at}; });
  }

  __device__ uint32_t draw(uint32_t largest) {
    cut();
    const uint64_t seed = given_.params.seed;
    const double first = token_noise(seed, given_.output_index, largest);
    double score = first;
    uint32_t best = largest;
    for (uint32_t base = threadIdx.x * 4; base < vocab_; base += kThreads * 4) {
      bool drawn = false;
      uint4 words{};
      for (uint32_t i = 0; i < 4 && base + i < vocab_; ++i) {
        const float logit = scaled(base + i);
        // No noise could make it the largest.
        if (static_cast<double>(logit) + kMostGumbel < first || !stays(base + i)) continue;
        if (!drawn) words = philox(seed, base / 4, given_.output_index);
        drawn = true;
        const uint32_t word = i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
        const double value = __dadd_rn(static_cast<double>(logit), gumbel(word));
        if (value > score || (value == score && base + i < best)) {
          score = value;
          best = base + i;
        }
      }
    }
    const double top =
        block_reduce(score, state_.reduce_double, [](double x, double y) { return x > y ? x : y; });
    return id_of(block_max(score == top ? Key{~best} : 0, state_.reduce));
  }

  // Logarithms of probabilities under the logits as they came.
  __device__ void report(uint32_t token) {
    Key best = 0;
    each([&](uint32_t id) { best = max(best, key_of(raw(id), id)); });
    best = block_max(best, state_.reduce);
    const float most = raw(id_of(best));
    double sum = 0;
    each([&](uint32_t id) { sum += static_cast<double>(expf(raw(id) - most)); });
    sum = block_reduce(sum, state_.reduce_double, [](double x, double y) { return x + y; });
    const double total = isinf(most) ? static_cast<double>(most) : most + log(sum);
    const auto logprob = [&](uint32_t id) {
      return static_cast<float>(static_cast<double>(raw(id)) - total);
    };
    if (threadIdx.x == 0 && a_.logprob != nullptr) a_.logprob[row_] = logprob(token);
    for (size_t i = 0; i < a_.n_top; ++i) {
      const uint32_t id = id_of(best);
      if (threadIdx.x == 0) {
        a_.top_token[row_ * a_.n_top + i] = static_cast<int32_t>(id);
        a_.top_logprob[row_ * a_.n_top + i] = logprob(id);
      }
      Key next = 0;
      each([&](uint32_t other) {
        const Key key = key_of(raw(other), other);
        if (key < best) next = max(next, key);
      });
      best = block_max(next, state_.reduce);
    }
  }

  const GpuSample& a_;
  const size_t row_;
  RowState& state_;
  const uint32_t vocab_;
  SampleRow given_;
  float most_ = 0;
  uint32_t least_ = 0;
  uint32_t last_ = kAll;
};

__global__ void __launch_bounds__(kThreads) sample_kernel(const __grid_constant__ GpuSample a) {
  __shared__ RowState state;
  wait_for_kernel_before();
  Row(a, blockIdx.x, state).run();
}

}  // namespace

size_t gpu_sample_workspace_bytes(size_t max_rows, size_t) {
  return std::max<size_t>(max_rows, 1) * sizeof(GreedyCell);
}

void gpu_sample(const GpuSample& a, CudaStream stream) {
  expect(a.vocab > 0 && a.n_shards * a.shard_vocab >= a.vocab && a.n_top <= a.vocab,
         "gpu_sample: shards do not cover the vocabulary, or n_top exceeds it");
  expect(a.vocab <= size_t{INT32_MAX} && a.rows <= 65'535, "gpu_sample: too many rows or ids");
  if (a.rows == 0) return;
  if (a.row != nullptr || a.logprob != nullptr || a.n_top > 0)
    return launch("gpu_sample", sample_kernel, static_cast<unsigned>(a.rows), kThreads, 0, stream,
                  a.dependent_launch, a);
  constexpr size_t kBlockIds = kGreedyThreads * kGreedyEach;
  const dim3 grid(static_cast<unsigned>((a.vocab + kBlockIds - 1) / kBlockIds),
                  static_cast<unsigned>(a.rows));
  launch("gpu_sample greedy", greedy_kernel, grid, kGreedyThreads, 0, stream, a.dependent_launch,
         a);
}

}  // namespace weft::kernels
