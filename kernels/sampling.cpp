// Sampling on the CPU, a row at a time. Cuts (top-k, top-p, the most likely tokens) select instead
// of sorting the vocabulary, and every order is total: larger logit first, then lower id.
#include "kernels/sampling.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>

#include "kernels/cpu_kernels.h"
#include "kernels/gumbel.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

constexpr size_t kChunk = 1024;  // ids of one partial log-sum-exp
// Threads at most: each needs 20 bytes a token of the vocabulary, and a step has few rows.
constexpr size_t kMostThreads = 16;

struct Candidate {
  float logit;
  int32_t id;
  // exp(logit − largest) · 2^40, rounded down: integers, so that sums do not depend on their order.
  uint64_t weight;
};

bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// One thread's part of the workspace.
struct Scratch {
  Candidate* candidate;  // [vocab]
  float* raw;            // [vocab] the row's logits in one piece

  static size_t bytes(size_t vocab) {
    return vocab * sizeof(Candidate) + round_up(vocab, kLanes) * sizeof(float);
  }
  Scratch(std::byte* at, size_t vocab)
      : candidate(reinterpret_cast<Candidate*>(at)),
        raw(reinterpret_cast<float*>(at + vocab * sizeof(Candidate))) {}
};

void gather(const Sample& a, size_t row, float* raw) {
  for (size_t begin = 0, shard = 0; begin < a.vocab; begin += a.shard_vocab, ++shard)
    std::copy_n(a.logits + (shard * a.rows + row) * a.shard_vocab,
                std::min(a.shard_vocab, a.vocab - begin), raw + begin);
  // The sum is not finite if a logit is not; one of large logits may not be either, so look closer.
  float sum = 0;
  for (size_t i = 0; i < a.vocab; ++i) sum += raw[i];
  if (std::isfinite(sum)) return;
  for (size_t i = 0; i < a.vocab; ++i)
    if (!(raw[i] < INFINITY))  // minus infinity is a token that is never drawn
      throw std::domain_error(fmt::format("row {}: the logit of token {} is {}", row, i, raw[i]));
}

float penalised(float logit, size_t id, const SampleRow& row) {
  if (row.seen == nullptr || row.params.repetition_penalty == 1 || row.seen[id] == 0) return logit;
  return logit > 0 ? logit / row.params.repetition_penalty : logit * row.params.repetition_penalty;
}

int32_t first_largest(const float* logit, size_t n, const SampleRow& row) {
  size_t best = 0;
  float most = penalised(logit[0], 0, row);
  for (size_t i = 1; i < n; ++i) {
    const float value = penalised(logit[i], i, row);
    if (value > most) {
      most = value;
      best = i;
    }
  }
  return static_cast<int32_t>(best);
}

// Keeps the k largest and all that tie with the last of them.
size_t cut_top_k(Candidate* c, size_t n, size_t k) {
  if (k == 0 || k >= n) return n;
  std::nth_element(c, c + (k - 1), c + n, before);
  const float least = c[k - 1].logit;
  return static_cast<size_t>(
      std::partition(c + k, c + n, [&](const Candidate& x) { return x.logit == least; }) - c);
}

// Keeps the shortest run of the order that holds `p` of the weight: halves the range in question
// by selection, so the work is linear.
size_t cut_top_p(Candidate* c, size_t n, float p) {
  if (p >= 1) return n;
  uint64_t total = 0;
  for (size_t i = 0; i < n; ++i) total += c[i].weight;
  auto need = static_cast<uint64_t>(std::ceil(static_cast<double>(total) * double{p}));
  size_t begin = 0, end = n;  // the cut lies in (begin, end]
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(c + begin, c + middle, c + end, before);
    uint64_t upper = 0;
    for (size_t i = begin; i < middle; ++i) upper += c[i].weight;
    if (upper >= need) {
      end = middle;
    } else {
      need -= upper;
      begin = middle;
    }
  }
  return end;
}

int32_t draw(const CpuKernels& cpu, const Sample& a, const SampleRow& row, const Scratch& s) {
  const SamplingParams& p = row.params;
  const int32_t largest = first_largest(s.raw, a.vocab, row);
  const float most = penalised(s.raw[largest], static_cast<size_t>(largest), row);
  if (p.temperature == 0 || std::isinf(most)) return largest;

  for (size_t i = 0; i < a.vocab; ++i)
    s.candidate[i] = {(penalised(s.raw[i], i, row) - most) / p.temperature, static_cast<int32_t>(i),
                      0};
  size_t n = cut_top_k(s.candidate, a.vocab, static_cast<size_t>(p.top_k));
  if (p.top_p < 1) {
    for (size_t i = 0; i < n; ++i)
      s.candidate[i].weight = static_cast<uint64_t>(cpu.exp(s.candidate[i].logit) * 0x1p40f);
    n = cut_top_p(s.candidate, n, p.top_p);
  }

  int32_t best = largest;
  double score = token_noise(p.seed, row.output_index, largest);
  for (size_t i = 0; i < n; ++i) {
    const Candidate& c = s.candidate[i];
    if (c.logit + kMostGumbel < score) continue;  // no noise could make it the largest
    const double value = c.logit + token_noise(p.seed, row.output_index, c.id);
    if (value > score || (value == score && c.id < best)) {
      score = value;
      best = c.id;
    }
  }
  return best;
}

// ln Σ exp(logit): each chunk's sum under its own largest logit, then chunks in order.
double log_sum_exp(const CpuKernels& cpu, const float* logit, size_t n) {
  float most = -INFINITY;
  for (size_t i = 0; i < n; ++i) most = std::max(most, logit[i]);
  if (std::isinf(most)) return most;
  double total = 0;
  for (size_t begin = 0; begin < n; begin += kChunk) {
    alignas(64) float chunk[kChunk];
    const size_t size = std::min(kChunk, n - begin);
    std::copy_n(logit + begin, size, chunk);
    const SpanSoftmax part = cpu.softmax(chunk, 0, size, 1);
    if (!std::isinf(part.max)) total += double{part.sum} * std::exp(double{part.max} - most);
  }
  return most + std::log(total);
}

void report(const CpuKernels& cpu, const Sample& a, size_t r, const Scratch& s) {
  const double total = log_sum_exp(cpu, s.raw, a.vocab);
  const auto logprob = [&](int32_t id) { return static_cast<float>(s.raw[id] - total); };
  if (a.logprob != nullptr) a.logprob[r] = logprob(a.token[r]);
  if (a.n_top == 0) return;
  for (size_t i = 0; i < a.vocab; ++i) s.candidate[i] = {s.raw[i], static_cast<int32_t>(i), 0};
  if (a.n_top < a.vocab)
    std::nth_element(s.candidate, s.candidate + a.n_top, s.candidate + a.vocab, before);
  std::sort(s.candidate, s.candidate + a.n_top, before);
  for (size_t i = 0; i < a.n_top; ++i) {
    a.top_token[r * a.n_top + i] = s.candidate[i].id;
    a.top_logprob[r * a.n_top + i] = logprob(s.candidate[i].id);
  }
}

void check(const Sample& a) {
  WEFT_EXPECT(a.vocab > 0 && a.n_shards * a.shard_vocab >= a.vocab && a.n_top <= a.vocab);
  for (size_t r = 0; r < a.rows; ++r) {
    const SamplingParams& p = a.row[r].params;
    WEFT_EXPECT(p.temperature >= 0 && p.top_k >= 0 && p.top_p > 0 && p.repetition_penalty > 0);
  }
}

}  // namespace

size_t sample_workspace_bytes(size_t vocab, size_t n_threads) {
  return std::min(n_threads, kMostThreads) * Scratch::bytes(vocab);
}

void sample(const Sample& a, Stream& stream) {
  check(a);
  if (a.rows == 0) return;
  const CpuKernels& cpu = best_cpu_kernels();
  std::atomic<size_t> next{0};
  const auto serve = [&](size_t slot) {
    const Scratch scratch(a.workspace + slot * Scratch::bytes(a.vocab), a.vocab);
    for (size_t r = next++; r < a.rows; r = next++) {
      gather(a, r, scratch.raw);
      a.token[r] = draw(cpu, a, a.row[r], scratch);
      if (a.logprob != nullptr || a.n_top > 0) report(cpu, a, r, scratch);
    }
  };
  const size_t threads =
      a.rows * a.vocab < kElementwiseWork ? 1 : std::min(stream.pool().n_threads(), kMostThreads);
  stream.pool().split(std::min(threads, a.rows), 1, [&](size_t begin, size_t end) {
    for (size_t slot = begin; slot < end; ++slot) serve(slot);
  });
}

}  // namespace weft::kernels
