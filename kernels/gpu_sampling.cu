// Sampling on the GPU. Greedy rows alone: the whole GPU looks for the largest logit. Otherwise one
// block a row, which passes over the row's logits a few times: once to narrow them down to those
// that a cut may leave, then over these, where cuts are found by searching for the threshold of
// logits, four bits a pass, by sums of integers, so no order of additions shows. Noise and weights
// have the CPU's bits (kernels/gumbel.h, kernels/cpu_softmax.h).
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

// Cells of the workspace stand before all else, wherever rows end.
constexpr size_t kMaxRows = 4096;
constexpr size_t kCellsBytes = kMaxRows * sizeof(GreedyCell);

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

// No less than gumbel(), by the fast logarithm; it loses its hold where u is close to 1.
__device__ float gumbel_at_most(uint32_t word) {
  const uint32_t n = word >> 8;
  if (n >= (1u << 24) - 4096) return static_cast<float>(kMostGumbel);
  const float u = (static_cast<float>(n) + 0.5f) * 0x1p-24f;
  return 0.05f - __logf(-__logf(u));
}

__device__ double token_noise(uint64_t seed, uint32_t output_index, uint32_t id) {
  const uint4 words = philox(seed, id / 4, output_index);
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  return gumbel(word[id % 4]);
}

struct Candidate {
  float logit;  // relative to the largest, over the temperature
  uint32_t id;
};
constexpr uint32_t kMostCandidates = 4096;

// Logits that coarse cuts are tried at.
constexpr int kLevels = 8;
__device__ float level(int i) {
  constexpr float kLevel[kLevels] = {-0.5f, -1, -2, -4, -7, -10, -14, -20};
  return kLevel[i];
}

// What a block knows of its row.
struct RowState {
  Key reduce[kThreads / 32];
  double reduce_double[kThreads / 32];
  Key sums[kThreads / 32][16];
  uint32_t n_candidates;
  Candidate candidate[kMostCandidates];
};

class Row {
 public:
  __device__ Row(const GpuSample& args, size_t row, RowState& state)
      : a_(args),
        row_(row),
        state_(state),
        vocab_(static_cast<uint32_t>(args.vocab)),
        scaled_(reinterpret_cast<float*>(args.workspace + kCellsBytes) + row * args.vocab) {
    if (args.row != nullptr) given_ = args.row[row];
  }

  __device__ void run() {
    const bool draws = given_.params.temperature != 0;
    Key best = 0, bad = 0;
    each_id([&](uint32_t id) {
      const float logit = raw(id);
      if (!(logit < INFINITY)) bad = max(bad, Key{~id});
      const float value = penalised(logit, id);
      if (draws) scaled_[id] = value;
      best = max(best, key_of(value, id));
    });
    best = block_max(best, state_.reduce);
    bad = block_max(bad, state_.reduce);
    uint32_t token = id_of(best);
    if (bad == 0 && draws) {
      const float most = penalised(raw(token), token);
      if (!isinf(most)) token = draw(token, most);
    }
    if (threadIdx.x == 0) put_token(a_, row_, token, static_cast<uint32_t>(bad));
    if (a_.logprob != nullptr || a_.n_top > 0) report(bad == 0 ? token : 0);
  }

 private:
  // Calls f(id) for the thread's own ids, the same in every pass.
  template <class F>
  __device__ void each_id(F&& f) const {
#pragma unroll 4
    for (uint32_t id = threadIdx.x; id < vocab_; id += kThreads) f(id);
  }
  // Calls f(candidate) for the thread's share of what may be drawn.
  template <class F>
  __device__ void each(F&& f) const {
    if (!narrowed_) return each_id([&](uint32_t id) { f(Candidate{scaled_[id], id}); });
    for (uint32_t i = threadIdx.x; i < state_.n_candidates; i += kThreads) f(state_.candidate[i]);
  }

  __device__ float raw(uint32_t id) const { return logit_at(a_, row_, id); }

  __device__ float penalised(float logit, uint32_t id) const {
    const float penalty = given_.params.repetition_penalty;
    if (given_.seen == nullptr || penalty == 1 || given_.seen[id] == 0) return logit;
    return logit > 0 ? __fdiv_rn(logit, penalty) : __fmul_rn(logit, penalty);
  }

  __device__ static Key weight(float logit) {
    return static_cast<Key>(__fmul_rn(cpu_exp(logit), 0x1p40f));
  }

  // The sums of all threads, in every thread.
  template <int N>
  __device__ void sum_over_block(Key (&sum)[N]) {
    static_assert(N <= 16);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sum[i] += __shfl_xor_sync(kAll, sum[i], step);
      if (threadIdx.x % 32 == 0) state_.sums[threadIdx.x / 32][i] = sum[i];
    }
    __syncthreads();
    Key total = 0;
    if (threadIdx.x % 32 < N)
      for (int w = 0; w < kThreads / 32; ++w) total += state_.sums[w][threadIdx.x % 32];
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = __shfl_sync(kAll, total, i);
  }

  // Writes scaled logits, and keeps the few that are above a level beyond which no cut can reach.
  __device__ void narrow(float most) {
    const SamplingParams& p = given_.params;
    const bool by_count = p.top_k > 0 && static_cast<uint32_t>(p.top_k) < vocab_;
    const bool cuts = by_count || p.top_p < 1;
    Key sum[kLevels + 1] = {};  // numbers or weights above each level; the last of all
    Key count[kLevels] = {};
    each_id([&](uint32_t id) {
      const float logit = __fdiv_rn(__fsub_rn(scaled_[id], most), p.temperature);
      scaled_[id] = logit;
      if (!cuts) return;
      const Key w = by_count ? 1 : weight(logit);
      sum[kLevels] += w;
#pragma unroll
      for (int i = 0; i < kLevels; ++i) {
        sum[i] += logit >= level(i) ? w : 0;
        count[i] += logit >= level(i);
      }
    });
    if (!cuts) return;
    sum_over_block(sum);
    sum_over_block(count);
    whole_ = sum[kLevels];
    const Key need = by_count ? static_cast<Key>(p.top_k) : share_of(whole_);
    int chosen = 0;
    while (chosen < kLevels && sum[chosen] < need) ++chosen;
    Key n = kMostCandidates + 1;
#pragma unroll
    for (int i = 0; i < kLevels; ++i)
      if (i == chosen) n = count[i];
    if (n > kMostCandidates) return;
    if (threadIdx.x == 0) state_.n_candidates = 0;
    __syncthreads();
    each_id([&](uint32_t id) {
      const float logit = scaled_[id];
      if (logit >= level(chosen))
        state_.candidate[atomicAdd(&state_.n_candidates, 1)] = {logit, id};
    });
    __syncthreads();
    narrowed_ = true;
  }

  __device__ Key share_of(Key total) const {
    return static_cast<Key>(
        ceil(__dmul_rn(static_cast<double>(total), static_cast<double>(given_.params.top_p))));
  }

  // The largest threshold t such that the weights of candidates with value(c) >= t reach `need`,
  // which is at most the sum of all. `value` and `weigh` give integers.
  template <class V, class W>
  __device__ uint32_t threshold(Key need, V&& value, W&& weigh) {
    uint32_t t = 0;
    for (int shift = 28; shift >= 0; shift -= 4) {
      Key sum[15] = {};
      each([&](const Candidate& c) {
        const uint32_t v = value(c);
        if (v < t + (1u << shift)) return;
        const Key w = weigh(c);
#pragma unroll
        for (uint32_t i = 0; i < 15; ++i) sum[i] += v >= t + ((i + 1) << shift) ? w : 0;
      });
      sum_over_block(sum);
      uint32_t digit = 0;
#pragma unroll
      for (int i = 0; i < 15; ++i) digit += sum[i] >= need;
      t += digit << shift;
    }
    return t;
  }

  // Stay: logits above `least_`, or at it with an id of at most `last_`.
  __device__ bool stays(const Candidate& c) const {
    const uint32_t v = ordered(c.logit);
    return v > least_ || (v == least_ && c.id <= last_);
  }

  __device__ void cut() {
    const auto k = static_cast<uint32_t>(given_.params.top_k);
    const auto value = [](const Candidate& c) { return ordered(c.logit); };
    if (k > 0 && k < vocab_) least_ = threshold(k, value, [](const Candidate&) { return Key{1}; });
    if (given_.params.top_p >= 1) return;

    if (least_ > 0) {  // of those that the first cut leaves
      whole_ = 0;
      each([&](const Candidate& c) { whole_ += stays(c) ? weight(c.logit) : 0; });
      whole_ = block_sum(whole_, state_.reduce);
    }
    const Key need = share_of(whole_);
    const uint32_t cut_at =
        threshold(need, value, [&](const Candidate& c) { return stays(c) ? weight(c.logit) : 0; });
    // Of those at the threshold, as many of the lowest ids as are needed.
    Key above = 0, ties = 0, tie_weight = 0;
    each([&](const Candidate& c) {
      const uint32_t v = value(c);
      if (v > cut_at) above += weight(c.logit);
      if (v != cut_at) return;
      ++ties;
      tie_weight = weight(c.logit);
    });
    above = block_sum(above, state_.reduce);
    ties = block_sum(ties, state_.reduce);
    tie_weight = block_max(tie_weight, state_.reduce);
    least_ = cut_at;
    const Key wanted =
        tie_weight == 0 || need <= above ? 1 : (need - above + tie_weight - 1) / tie_weight;
    if (wanted >= ties) return;
    last_ = ~threshold(
        wanted, [&](const Candidate& c) { return value(c) == cut_at ? ~c.id : 0; },
        [&](const Candidate& c) { return Key{value(c) == cut_at}; });
  }

  __device__ uint32_t draw(uint32_t largest, float most) {
    narrow(most);
    cut();
    const uint64_t seed = given_.params.seed;
    double score = token_noise(seed, given_.output_index, largest);
    uint32_t best = largest;
    each([&](const Candidate& c) {
      if (static_cast<double>(c.logit) + kMostGumbel < score || !stays(c)) return;
      const uint4 words = philox(seed, c.id / 4, given_.output_index);
      const uint32_t i = c.id % 4;
      const uint32_t word = i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
      if (static_cast<double>(c.logit + gumbel_at_most(word)) < score) return;
      const double value = __dadd_rn(static_cast<double>(c.logit), gumbel(word));
      if (value > score || (value == score && c.id < best)) {
        score = value;
        best = c.id;
      }
    });
    const double top =
        block_reduce(score, state_.reduce_double, [](double x, double y) { return x > y ? x : y; });
    return id_of(block_max(score == top ? Key{~best} : 0, state_.reduce));
  }

  // Logarithms of probabilities under the logits as they came.
  __device__ void report(uint32_t token) {
    Key best = 0;
    each_id([&](uint32_t id) { best = max(best, key_of(raw(id), id)); });
    best = block_max(best, state_.reduce);
    const float most = raw(id_of(best));
    double sum = 0;
    each_id([&](uint32_t id) { sum += static_cast<double>(expf(raw(id) - most)); });
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
      each_id([&](uint32_t other) {
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
  float* scaled_;  // [vocab] penalised logits, then those of Candidate
  SampleRow given_;
  bool narrowed_ = false;
  Key whole_ = 0;  // weight of what may be drawn; of all, before a cut by number
  uint32_t least_ = 0;
  uint32_t last_ = kAll;
};

__global__ void __launch_bounds__(kThreads) sample_kernel(const __grid_constant__ GpuSample a) {
  __shared__ RowState state;
  wait_for_kernel_before();
  Row(a, blockIdx.x, state).run();
}

}  // namespace

size_t gpu_sample_workspace_bytes(size_t max_rows, size_t vocab) {
  return kCellsBytes + max_rows * vocab * sizeof(float);
}

void gpu_sample(const GpuSample& a, CudaStream stream) {
  expect(a.vocab > 0 && a.n_shards * a.shard_vocab >= a.vocab && a.n_top <= a.vocab,
         "gpu_sample: shards do not cover the vocabulary, or n_top exceeds it");
  expect(a.vocab <= size_t{INT32_MAX} && a.rows <= kMaxRows, "gpu_sample: more than 4096 rows");
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
