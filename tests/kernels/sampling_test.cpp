// Sampling: what may be drawn, how often, and that neither shards, rows nor threads change a token.
#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>

namespace weft::kernels {
namespace {

// Rows of logits with parameters, and room for the answers.
struct Draw {
  explicit Draw(size_t n_tokens) : vocab(n_tokens) {}

  size_t vocab;
  std::vector<std::vector<float>> logits;
  std::vector<SampleRow> rows;
  size_t n_shards = 1;
  size_t n_top = 0;
  size_t n_threads = 1;

  std::vector<int32_t> token;
  std::vector<float> logprob;
  std::vector<int32_t> top_token;
  std::vector<float> top_logprob;

  void add(std::vector<float> row, SamplingParams params, uint32_t output_index = 0,
           const uint8_t* seen = nullptr) {
    logits.push_back(std::move(row));
    rows.push_back({params, output_index, seen});
  }

  void run() {
    const size_t n = logits.size(), shard = (vocab + n_shards - 1) / n_shards;
    // Padding is the largest value there is: it must not be looked at.
    std::vector<float> packed(n_shards * n * shard, INFINITY);
    for (size_t r = 0; r < n; ++r)
      for (size_t i = 0; i < vocab; ++i)
        packed[(i / shard * n + r) * shard + i % shard] = logits[r][i];
    token.assign(n, -1);
    logprob.assign(n, NAN);
    top_token.assign(n * n_top, -1);
    top_logprob.assign(n * n_top, NAN);
    std::vector<__int128> workspace(sample_workspace_bytes(vocab, n_threads) / 16 + 1);
    Sample a;
    a.logits = packed.data();
    a.n_shards = n_shards;
    a.rows = n;
    a.shard_vocab = shard;
    a.vocab = vocab;
    a.row = rows.data();
    a.token = token.data();
    a.logprob = logprob.data();
    a.n_top = n_top;
    a.top_token = top_token.data();
    a.top_logprob = top_logprob.data();
    a.workspace = reinterpret_cast<std::byte*>(workspace.data());
    ThreadPool pool(n_threads);
    Stream stream(pool);
    sample(a, stream);
  }
};

SamplingParams at(float temperature, int32_t top_k = 0, float top_p = 1, uint64_t seed = 0) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.seed = seed;
  return p;
}

std::vector<float> random_logits(size_t vocab, uint32_t seed, float deviation = 2) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(vocab);
  for (float& value : row) value = normal(engine);
  return row;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  for (float logit : logits) p.push_back(std::exp((logit - most) / temperature));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

// One token for each of n output indices.
std::vector<int32_t> draws(const std::vector<float>& logits, SamplingParams params, size_t n) {
  Draw draw(logits.size());
  for (size_t i = 0; i < n; ++i) draw.add(logits, params, static_cast<uint32_t>(i));
  draw.run();
  return draw.token;
}

TEST(Sampling, GreedyTakesTheLargestAndOfEqualsTheFirst) {
  Draw draw(5);
  draw.add({1, 3, 2, 3, 0}, at(0));
  draw.add({-1, -INFINITY, -2, -1, -1}, at(0));
  draw.add({-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, at(0));
  draw.run();
  EXPECT_EQ(draw.token, (std::vector<int32_t>{1, 0, 0}));
}

TEST(Sampling, DrawsFollowTheSoftmax) {
  for (float temperature : {0.7f, 1.0f, 1.5f}) {
    const std::vector<float> logits = random_logits(40, 9, 1);
    const std::vector<double> p = softmax(logits, temperature);
    const size_t n = 20000;
    std::vector<double> seen(40);
    for (int32_t token : draws(logits, at(temperature, 0, 1, 77), n)) ++seen[token];
    double chi_square = 0;
    for (size_t i = 0; i < 40; ++i) {
      const double expected = p[i] * n;
      chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    EXPECT_LT(chi_square, 72.1) << temperature;  // 39 degrees of freedom, 0.1 %
    EXPECT_GT(chi_square, 16.3) << temperature;  // nor better than chance
  }
}

TEST(Sampling, TopKKeepsKAndTies) {
  std::set<int32_t> seen;
  for (int32_t token : draws({5, 4, 4, 4, 1, 5, 0}, at(5, 3), 2000)) seen.insert(token);
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3, 5}));
  seen.clear();
  for (int32_t token : draws({1, 2, 3, 4}, at(9, 2), 500)) seen.insert(token);
  EXPECT_EQ(seen, (std::set<int32_t>{2, 3}));
  for (int32_t token : draws(random_logits(300, 4), at(9, 1), 50))
    EXPECT_EQ(token, draws(random_logits(300, 4), at(0), 1)[0]);
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 1/2, 1/4, 1/8, 1/16, 1/16 in a scrambled order.
  const auto ln2 = static_cast<float>(std::log(2.0));
  const std::vector<float> logits{-4 * ln2, -1 * ln2, -3 * ln2, -4 * ln2, -2 * ln2};
  const std::map<float, std::set<int32_t>> allowed{{1e-6f, {1}},         {0.49f, {1}},
                                                   {0.51f, {1, 4}},      {0.76f, {1, 2, 4}},
                                                   {0.9f, {0, 1, 2, 4}}, {0.95f, {0, 1, 2, 3, 4}}};
  for (const auto& [p, ids] : allowed) {
    std::set<int32_t> seen;
    for (int32_t token : draws(logits, at(1, 0, p), 1500)) seen.insert(token);
    EXPECT_EQ(seen, ids) << "top_p " << p;
  }
}

// Against a full sort, on flat and peaked rows and beside top-k.
TEST(Sampling, TopPMembershipAgainstASort) {
  for (float deviation : {0.0f, 0.1f, 3.0f})
    for (float top_p : {0.05f, 0.5f, 0.93f})
      for (int32_t top_k : {0, 50}) {
        const std::vector<float> logits = random_logits(1000, 3, deviation);
        std::vector<int32_t> order(1000);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
        // Ties at the k-th stay in, so equal logits are never cut by k.
        size_t most = top_k == 0 || deviation == 0 ? 1000 : static_cast<size_t>(top_k);
        order.resize(most);
        const std::vector<double> p = softmax(logits, 1);
        double total = 0, sum = 0;
        for (int32_t id : order) total += p[id];
        std::set<int32_t> allowed;
        for (int32_t id : order) {
          if (sum >= total * (top_p + 1e-6)) break;
          allowed.insert(id);
          sum += p[id];
        }
        std::set<int32_t> seen;
        for (int32_t token : draws(logits, at(1, top_k, top_p, 5), 400)) {
          EXPECT_TRUE(allowed.count(token)) << token << " deviation " << deviation << " " << top_p;
          seen.insert(token);
        }
        EXPECT_GT(seen.size(), std::min<size_t>(allowed.size(), 100) / 3);
      }
}

TEST(Sampling, PenaltyDividesPositiveAndMultipliesNegative) {
  SamplingParams greedy = at(0);
  greedy.repetition_penalty = 2;
  const std::vector<uint8_t> seen{1, 0, 1, 0};
  Draw draw(4);
  draw.add({4, 3, 0, 1}, greedy, 0, seen.data());
  draw.add({4, 1, 0, 1}, greedy, 0, seen.data());
  draw.add({-1, -1.5f, -1, -9}, greedy, 0, seen.data());
  draw.add({4, 3, 0, 1}, greedy, 0, nullptr);
  draw.run();
  EXPECT_EQ(draw.token, (std::vector<int32_t>{1, 0, 1, 0}));
  // Log-probabilities are of the logits as they came.
  const double total = std::log(std::exp(4.0) + std::exp(3.0) + 1 + std::exp(1.0));
  EXPECT_NEAR(draw.logprob[0], 3 - total, 1e-6);
}

TEST(Sampling, ShardsRowsAndThreadsDoNotChangeATokenOrALogprob) {
  const size_t vocab = 1003;
  std::vector<uint8_t> seen(vocab);
  for (size_t i = 0; i < vocab; i += 3) seen[i] = 1;
  Draw whole(vocab);
  whole.n_top = 3;
  for (uint32_t r = 0; r < 33; ++r) {
    SamplingParams params = at(r % 4 * 0.5f, r % 3 == 0 ? 40 : 0, r % 5 == 0 ? 0.8f : 1, r);
    params.repetition_penalty = r % 2 ? 1.3f : 1;
    whole.add(random_logits(vocab, 50 + r), params, r * 3, seen.data());
  }
  whole.run();
  for (size_t n_shards : {2, 4, 7})
    for (size_t n_threads : {1, 3, 20}) {
      Draw split = whole;
      split.n_shards = n_shards;
      split.n_threads = n_threads;
      split.run();
      EXPECT_EQ(split.token, whole.token);
      EXPECT_EQ(split.logprob, whole.logprob);
      EXPECT_EQ(split.top_token, whole.top_token);
      EXPECT_EQ(split.top_logprob, whole.top_logprob);
    }
  for (size_t r : {0, 5, 32}) {
    Draw alone(vocab);
    alone.logits = {whole.logits[r]};
    alone.rows = {whole.rows[r]};
    alone.run();
    EXPECT_EQ(alone.token[0], whole.token[r]);
    EXPECT_EQ(alone.logprob[0], whole.logprob[r]);
  }
}

TEST(Sampling, SeedAndOutputIndexChangeTheDraw) {
  const std::vector<float> flat(500, 0.0f);
  const std::vector<int32_t> first = draws(flat, at(1, 0, 1, 1), 200);
  EXPECT_EQ(first, draws(flat, at(1, 0, 1, 1), 200));
  const std::vector<int32_t> second = draws(flat, at(1, 0, 1, 2), 200);
  size_t equal = 0;
  for (size_t i = 0; i < 200; ++i) equal += first[i] == second[i];
  EXPECT_LT(equal, 10u);
  EXPECT_GT((std::set<int32_t>(first.begin(), first.end()).size()), 100u);
}

TEST(Sampling, TinyTemperatureIsGreedy) { EXPECT_EQ(draws({40, 50, 49.99f}, at(1e-30f), 1)[0], 1); }

TEST(Sampling, LogprobsAgainstDouble) {
  for (size_t vocab : {1, 31, 33, 1024, 1025, 32256})
    for (float deviation : {0.5f, 20.0f}) {
      Draw draw(vocab);
      draw.n_top = std::min<size_t>(vocab, 5);
      std::vector<float> logits = random_logits(vocab, 8, deviation);
      if (vocab > 2000)
        for (size_t i = 1024; i < 2048; ++i) logits[i] = -INFINITY;  // a chunk without weight
      draw.add(logits, at(0));
      draw.run();
      const std::vector<double> p = softmax(logits, 1);
      std::vector<int32_t> order(vocab);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
      EXPECT_NEAR(draw.logprob[0], std::log(p[order[0]]), 1e-5) << vocab;
      for (size_t i = 0; i < draw.n_top; ++i) {
        EXPECT_EQ(draw.top_token[i], order[i]);
        EXPECT_NEAR(draw.top_logprob[i], std::log(p[order[i]]), 1e-5) << vocab << " top " << i;
      }
    }
}

TEST(Sampling, EqualLogitsAreReportedByLowestId) {
  Draw draw(6);
  draw.n_top = 4;
  draw.add({1, 2, 2, 1, 2, 1}, at(0));
  draw.run();
  EXPECT_EQ(draw.top_token, (std::vector<int32_t>{1, 2, 4, 0}));
}

void expect_refused(float logit, size_t n_threads) {
  Draw draw(20000);
  draw.n_threads = n_threads;
  for (uint32_t r = 0; r < 4; ++r) draw.add(random_logits(20000, r), at(1));
  draw.logits[2][13] = logit;
  try {
    draw.run();
    FAIL() << logit << " passed";
  } catch (const std::domain_error& error) {
    EXPECT_NE(std::string(error.what()).find("row 2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("13"), std::string::npos) << error.what();
  }
}

TEST(Sampling, LogitsThatAreNotFiniteNameTheRow) {
  for (float logit : {NAN, INFINITY})
    for (size_t n_threads : {1, 2}) expect_refused(logit, n_threads);
}

// Their sum overflows, and each is fine.
TEST(Sampling, LargeLogitsPass) {
  Draw draw(4);
  draw.add({3e38f, 3.1e38f, 3e38f, 1}, at(0));
  draw.run();
  EXPECT_EQ(draw.token, (std::vector<int32_t>{1}));
}

}  // namespace
}  // namespace weft::kernels
