// Sampling on the GPU takes the CPU's token from the same logits, for any shards, rows and cuts.
#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "kernels/gpu_sampling.h"
#include "tests/kernels/gpu/gpu_array.h"

namespace weft::kernels {
namespace {

using test::GpuArray;

struct Answer {
  std::vector<int32_t> token, bad, top_token;
  std::vector<float> logprob, top_logprob;
};

struct Draw {
  explicit Draw(size_t n_tokens) : vocab(n_tokens) {}

  size_t vocab;
  std::vector<std::vector<float>> logits;
  std::vector<SampleRow> rows;
  std::vector<std::vector<uint8_t>> seen;  // of each row; empty = none
  size_t n_shards = 1;
  size_t n_top = 0;

  void add(std::vector<float> row, SamplingParams params = {}, uint32_t output_index = 0,
           std::vector<uint8_t> occurred = {}) {
    logits.push_back(std::move(row));
    rows.push_back({params, output_index, nullptr});
    seen.push_back(std::move(occurred));
  }

  size_t shard() const { return (vocab + n_shards - 1) / n_shards; }

  // Padding is the largest value there is: it must not be looked at.
  std::vector<float> packed() const {
    const size_t n = logits.size();
    std::vector<float> all(n_shards * n * shard(), INFINITY);
    for (size_t r = 0; r < n; ++r)
      for (size_t i = 0; i < vocab; ++i)
        all[(i / shard() * n + r) * shard() + i % shard()] = logits[r][i];
    return all;
  }

  Answer cpu() {
    Answer out = poisoned();
    std::vector<SampleRow> with_seen = rows;
    for (size_t r = 0; r < rows.size(); ++r)
      if (!seen[r].empty()) with_seen[r].seen = seen[r].data();
    const std::vector<float> all = packed();
    std::vector<__int128> workspace(sample_workspace_bytes(vocab, 2) / 16 + 1);
    Sample a;
    a.logits = all.data();
    a.n_shards = n_shards;
    a.rows = rows.size();
    a.shard_vocab = shard();
    a.vocab = vocab;
    a.row = with_seen.data();
    a.token = out.token.data();
    a.logprob = out.logprob.data();
    a.n_top = n_top;
    a.top_token = out.top_token.data();
    a.top_logprob = out.top_logprob.data();
    a.workspace = reinterpret_cast<std::byte*>(workspace.data());
    ThreadPool pool(2);
    Stream stream(pool);
    sample(a, stream);
    return out;
  }

  // greedy: without parameters, the path of the whole GPU.
  Answer gpu(bool greedy = false, int launches = 1) {
    const Answer poison = poisoned();
    std::vector<std::unique_ptr<GpuArray<uint8_t>>> flags;
    std::vector<SampleRow> with_seen = rows;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (seen[r].empty()) continue;
      flags.push_back(std::make_unique<GpuArray<uint8_t>>(seen[r]));
      with_seen[r].seen = flags.back()->data();
    }
    const GpuArray<float> all(packed()), logprob(poison.logprob), top_logprob(poison.top_logprob);
    const GpuArray<SampleRow> params(with_seen);
    const GpuArray<int32_t> token(poison.token), copy(poison.token), bad(poison.bad),
        top_token(poison.top_token);
    const GpuArray<std::byte> workspace(gpu_sample_workspace_bytes(rows.size(), vocab),
                                        std::byte{0});
    GpuSample a;
    a.logits = all.data();
    a.n_shards = n_shards;
    a.rows = rows.size();
    a.shard_vocab = shard();
    a.vocab = vocab;
    a.row = greedy ? nullptr : params.data();
    a.token = token.data();
    a.token_host = copy.data();
    a.bad = bad.data();
    a.logprob = greedy ? nullptr : logprob.data();
    a.n_top = n_top;
    a.top_token = top_token.data();
    a.top_logprob = top_logprob.data();
    a.workspace = workspace.data();
    for (int i = 0; i < launches; ++i) gpu_sample(a, nullptr);
    check(cudaDeviceSynchronize(), "sample");
    EXPECT_EQ(token.get(), copy.get());
    return {token.get(), bad.get(), top_token.get(), logprob.get(), top_logprob.get()};
  }

 private:
  Answer poisoned() const {
    const size_t n = rows.size();
    return {std::vector<int32_t>(n, -7), std::vector<int32_t>(n, -7),
            std::vector<int32_t>(n * n_top, -7), std::vector<float>(n, NAN),
            std::vector<float>(n * n_top, NAN)};
  }
};

SamplingParams at(float temperature, int32_t top_k = 0, float top_p = 1, uint64_t seed = 0,
                  float penalty = 1) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.seed = seed;
  p.repetition_penalty = penalty;
  return p;
}

std::vector<float> random_logits(size_t vocab, uint32_t seed, float deviation = 2) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(vocab);
  for (float& value : row) value = normal(engine);
  return row;
}

// Few different values, so that many tie.
std::vector<float> coarse_logits(size_t vocab, uint32_t seed) {
  std::vector<float> row = random_logits(vocab, seed, 3);
  for (float& value : row) value = std::round(value);
  return row;
}

void expect_same(const Answer& got, const Answer& want, const std::string& what) {
  EXPECT_EQ(got.token, want.token) << what;
  EXPECT_EQ(got.top_token, want.top_token) << what;
  ASSERT_EQ(got.logprob.size(), want.logprob.size());
  for (size_t i = 0; i < want.logprob.size(); ++i)
    EXPECT_NEAR(got.logprob[i], want.logprob[i], 2e-5) << what << " row " << i;
  for (size_t i = 0; i < want.top_logprob.size(); ++i)
    EXPECT_NEAR(got.top_logprob[i], want.top_logprob[i], 2e-5) << what << " top " << i;
}

TEST(GpuSampling, GreedyOfEveryVocabulary) {
  WEFT_NEEDS_A_GPU();
  for (size_t vocab : {1, 5, 31, 1000, 2048, 2049, 32256, 152064})
    for (size_t n_shards : {1, 3}) {
      if (n_shards > vocab) continue;
      Draw draw(vocab);
      draw.n_shards = n_shards;
      for (uint32_t r = 0; r < 5; ++r)
        draw.add(r % 2 ? coarse_logits(vocab, r) : random_logits(vocab, r));
      draw.add(std::vector<float>(vocab, -INFINITY));
      std::vector<float> zeros(vocab, -0.0f);  // equals 0: the first of both wins
      zeros[vocab / 2] = 0;
      draw.add(zeros);
      const Answer want = draw.cpu();
      for (bool greedy : {true, false}) {
        const Answer got = draw.gpu(greedy, 3);
        EXPECT_EQ(got.token, want.token) << vocab << " in " << n_shards << " greedy " << greedy;
        EXPECT_EQ(got.bad, std::vector<int32_t>(7, -1));
      }
    }
}

TEST(GpuSampling, DrawsTheTokenOfTheCpu) {
  WEFT_NEEDS_A_GPU();
  for (size_t vocab : {7, 1003, 32256})
    for (bool coarse : {false, true}) {
      Draw draw(vocab);
      draw.n_top = std::min<size_t>(vocab, 3);
      std::mt19937 engine(static_cast<uint32_t>(vocab));
      for (uint32_t r = 0; r < 60; ++r) {
        const float temperature = std::vector<float>{0, 0.3f, 1, 1.7f}[r % 4];
        const int32_t top_k = std::vector<int32_t>{0, 1, 40, 5000}[r / 4 % 4];
        const float top_p = std::vector<float>{1, 0.9f, 0.5f, 0.05f, 1e-6f}[r % 5];
        const float penalty = r % 3 == 0 ? 1.3f : 1;
        std::vector<uint8_t> seen;
        if (r % 3 == 0)
          for (size_t i = 0; i < vocab; ++i) seen.push_back(engine() % 4 == 0);
        std::vector<float> logits = coarse ? coarse_logits(vocab, r) : random_logits(vocab, r);
        if (r % 7 == 0) logits[vocab / 3] = -INFINITY;
        draw.add(logits, at(temperature, top_k, top_p, uint64_t{r} << 33 | 5, penalty), r * 3,
                 seen);
      }
      const Answer want = draw.cpu();
      for (size_t n_shards : {1, 2, 7}) {
        draw.n_shards = n_shards;
        expect_same(draw.gpu(), want, "vocab " + std::to_string(vocab));
      }
    }
}

TEST(GpuSampling, ManyDrawsOfOneRow) {
  WEFT_NEEDS_A_GPU();
  Draw draw(500);
  for (uint32_t r = 0; r < 400; ++r) draw.add(random_logits(500, 1), at(1, 0, 0.95f, 9), r);
  const Answer got = draw.gpu();
  EXPECT_EQ(got.token, draw.cpu().token);
  EXPECT_GT(std::count_if(got.token.begin(), got.token.end(),
                          [&](int32_t id) { return id != got.token[0]; }),
            100);
}

TEST(GpuSampling, BadLogitsAreFlaggedInTheirRow) {
  WEFT_NEEDS_A_GPU();
  for (float value : {NAN, INFINITY})
    for (bool greedy : {true, false}) {
      Draw draw(20000);
      for (uint32_t r = 0; r < 4; ++r) draw.add(random_logits(20000, r), at(greedy ? 0 : 1));
      draw.logits[2][13] = draw.logits[2][15000] = value;
      const Answer got = draw.gpu(greedy, 2);
      EXPECT_EQ(got.bad, (std::vector<int32_t>{-1, -1, 13, -1}));
      EXPECT_EQ(got.token[2], 0);
    }
}

TEST(GpuSampling, LogprobsDoNotDependOnShardsOrRows) {
  WEFT_NEEDS_A_GPU();
  Draw draw(1003);
  for (uint32_t r = 0; r < 33; ++r) draw.add(random_logits(1003, r), at(1, 0, 1, r));
  const Answer want = draw.gpu();
  draw.n_shards = 4;
  EXPECT_EQ(draw.gpu().logprob, want.logprob);
  Draw alone(1003);
  alone.add(draw.logits[32], draw.rows[32].params);
  EXPECT_EQ(alone.gpu().logprob[0], want.logprob[32]);
}

}  // namespace
}  // namespace weft::kernels
