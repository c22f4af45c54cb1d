// Sums over peers that are streams of one process: the same words, flags and epochs as between
// processes. What a kernel waits for must be running, so every wait here has a limit.
#include "kernels/gpu_peer_reduce.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "kernels/gpu_device.h"
#include "kernels/gpu_devices.h"
#include "kernels/gpu_rms_norm.h"
#include "kernels/gpu_tree_sum.h"
#include "kernels/residual_add.h"

namespace weft::kernels {
namespace {

// Kernels that wait for each other must not share a queue, nor wait until one is loaded.
const bool prepared = [] {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  return true;
}();

constexpr std::chrono::seconds kLimit{20};

template <class T>
void to_gpu(GpuBuffer& to, const std::vector<T>& from) {
  copy_bytes(to.data(), from.data(), from.size() * sizeof(T), nullptr);
  synchronise(nullptr);
}

template <class T>
std::vector<T> from_gpu(const GpuBuffer& from, size_t n) {
  std::vector<T> values(n);
  copy_bytes(values.data(), from.data(), n * sizeof(T), nullptr);
  synchronise(nullptr);
  return values;
}

class Peers {
 public:
  Peers(int ranks, size_t half_words) : abort_(sizeof(uint32_t)) {
    for (int r = 0; r < ranks; ++r) {
      streams_.emplace_back();
      memory_.emplace_back(2 * half_words * kPeerWordBytes);
      clear_bytes(memory_.back().data(), memory_.back().bytes(), nullptr);
      states_.emplace_back(sizeof(PeerState));
      clear_bytes(states_.back().data(), sizeof(PeerState), nullptr);
    }
    synchronise(nullptr);
    for (int r = 0; r < ranks; ++r) {
      PeerGroup group;
      for (size_t p = 0; p < memory_.size(); ++p) group.memory[p] = memory_[p].data();
      group.half_words = half_words;
      group.rank = r;
      group.ranks = ranks;
      group.state = reinterpret_cast<PeerState*>(states_[static_cast<size_t>(r)].data());
      group.abort = reinterpret_cast<uint32_t*>(abort_.data());
      groups_.push_back(group);
    }
  }

  size_t size() const { return groups_.size(); }
  const PeerGroup& group(size_t r) const { return groups_[r]; }
  const GpuStream& stream(size_t r) const { return streams_[r]; }
  void set_epoch(uint32_t epoch) {
    for (GpuBuffer& state : states_) copy_bytes(state.data(), &epoch, sizeof epoch, nullptr);
    synchronise(nullptr);
  }
  void abort() { std::atomic_ref(*reinterpret_cast<uint32_t*>(abort_.data())).store(1); }

  // Until the work of streams [0, n) is done; false where it had to be ended.
  bool finish(size_t n) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    bool in_time = true;
    for (size_t r = 0; r < n; ++r) {
      GpuEvent done;
      done.record(streams_[r]);
      while (!done.happened()) {
        if (std::chrono::steady_clock::now() > end) {
          in_time = false;
          abort();
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    return in_time;
  }

 private:
  std::vector<GpuStream> streams_;
  std::vector<GpuBuffer> memory_;
  std::vector<GpuBuffer> states_;
  PinnedBuffer abort_;
  std::vector<PeerGroup> groups_;
};

class PeerReduceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const GpuQuery query = query_gpus();
    if (query.gpus.empty()) GTEST_SKIP() << "no GPU: " << query.why_none;
  }
};

template <class T>
std::vector<T> random_values(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 100.0f);
  std::vector<T> values(n);
  for (T& x : values) x = from_float<T>(normal(random));
  return values;
}

template <class T>
float tree_of(const std::vector<std::vector<T>>& all, size_t i, size_t first, size_t n) {
  if (n == 1) return to_float(all[first][i]);
  const size_t left = std::bit_ceil(n) / 2;
  return tree_of(all, i, first, left) + tree_of(all, i, first + left, n - left);
}

template <class T>
std::vector<std::vector<T>> values_of_ranks(size_t ranks, size_t n, unsigned seed) {
  std::vector<std::vector<T>> all;
  for (size_t r = 0; r < ranks; ++r)
    all.push_back(random_values<T>(n, seed + static_cast<unsigned>(r)));
  return all;
}

template <class T>
std::vector<T> tree_sums(const std::vector<std::vector<T>>& all) {
  std::vector<T> sums(all[0].size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = from_float<T>(tree_of(all, i, 0, all.size()));
  return sums;
}

template <class T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& expected,
                      const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(T)), 0)
        << what << ", element " << i << " of " << got.size() << ": " << to_float(got[i]) << " for "
        << to_float(expected[i]);
}

const std::vector<size_t> kSizes = {1, 3, 31, 33, 257, 2048, 7168, 30'011};

template <class T>
void expect_tree(Peers& peers, bool two_shot) {
  unsigned seed = 1;
  for (const size_t n : kSizes) {
    const auto all = values_of_ranks<T>(peers.size(), n, seed += 100);
    std::vector<GpuBuffer> data;
    for (size_t r = 0; r < peers.size(); ++r) {
      data.emplace_back(n * sizeof(T));
      to_gpu(data[r], all[r]);
    }
    for (size_t r = 0; r < peers.size(); ++r) {
      GpuPeerSum sum;
      sum.group = peers.group(r);
      sum.data = {data[r].data(), dtype_of<T>::value};
      sum.n = n;
      sum.two_shot = two_shot;
      gpu_peer_sum(sum, peers.stream(r));
    }
    ASSERT_TRUE(peers.finish(peers.size())) << n << " elements: stuck";
    const std::vector<T> expected = tree_sums(all);
    for (size_t r = 0; r < peers.size(); ++r)
      expect_same_bits(from_gpu<T>(data[r], n), expected,
                       "rank " + std::to_string(r) + " of " + std::to_string(peers.size()));
  }
}

TEST_F(PeerReduceTest, SumsAsTheTreeOverRanks) {
  for (int ranks = 2; ranks <= kMostPeers; ++ranks) {
    const size_t bytes = kSizes.back() * sizeof(float);
    Peers peers(ranks, std::max(one_shot_words(ranks, bytes), two_shot_words(ranks, bytes)));
    for (const bool two_shot : {false, true, false}) {
      expect_tree<float>(peers, two_shot);
      expect_tree<bf16>(peers, two_shot);
      expect_tree<f16>(peers, two_shot);
    }
  }
}

TEST_F(PeerReduceTest, CountsOnWhenEpochsComeRoundAgain) {
  Peers peers(2, one_shot_words(2, kSizes.back() * sizeof(float)));
  peers.set_epoch(0xfffffffc);
  expect_tree<float>(peers, false);
  EXPECT_FALSE(::testing::Test::HasFailure());
}

// Residual, bias and norm, of one dtype.
struct Joined {
  std::vector<float> residual, normed;
};

template <class T>
void expect_joined(Peers& peers, size_t tokens, size_t hidden, bool two_shot, bool with_bias) {
  const size_t n = tokens * hidden;
  const auto partials = values_of_ranks<float>(peers.size(), n, 7);
  const std::vector<T> bias = random_values<T>(hidden, 8), weight = random_values<T>(hidden, 9);
  const std::vector<T> before = random_values<T>(n, 10);
  GpuBuffer bias_there(hidden * sizeof(T)), weight_there(hidden * sizeof(T));
  to_gpu(bias_there, bias);
  to_gpu(weight_there, weight);
  std::vector<GpuBuffer> partial, residual, normed;
  for (size_t r = 0; r < peers.size(); ++r) {
    partial.emplace_back(n * sizeof(float));
    residual.emplace_back(n * sizeof(T));
    normed.emplace_back(n * sizeof(T));
    to_gpu(partial[r], partials[r]);
    to_gpu(residual[r], before);
  }
  const DType dtype = dtype_of<T>::value;
  for (size_t r = 0; r < peers.size(); ++r) {
    GpuPeerResidual args;
    args.group = peers.group(r);
    args.partial = reinterpret_cast<const float*>(partial[r].data());
    if (with_bias) args.bias = {bias_there.data(), dtype};
    args.residual = {residual[r].data(), dtype};
    args.norm_weight = {weight_there.data(), dtype};
    args.normed = {normed[r].data(), dtype};
    args.tokens = tokens;
    args.hidden = hidden;
    args.two_shot = two_shot;
    gpu_peer_residual(args, peers.stream(r));
  }
  ASSERT_TRUE(peers.finish(peers.size())) << tokens << " x " << hidden << ": stuck";

  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<T> expected = before;
  const std::vector<float> sums = tree_sums(partials);
  ResidualAdd add;
  add.partial = sums.data();
  if (with_bias) add.bias = bias.data();
  add.residual = expected.data();
  add.tokens = tokens;
  add.hidden = hidden;
  residual_add(add, stream);

  GpuRmsNorm norm;
  GpuBuffer x(n * sizeof(T)), y(n * sizeof(T));
  to_gpu(x, expected);
  norm.x = {x.data(), dtype};
  norm.weight = {weight_there.data(), dtype};
  norm.y = {y.data(), dtype};
  norm.tokens = tokens;
  norm.width = norm.x_stride = norm.y_stride = hidden;
  gpu_rms_norm(norm, nullptr);
  const std::vector<T> expected_norm = from_gpu<T>(y, n);
  for (size_t r = 0; r < peers.size(); ++r) {
    expect_same_bits(from_gpu<T>(residual[r], n), expected, "residual");
    expect_same_bits(from_gpu<T>(normed[r], n), expected_norm, "normed");
  }
}

TEST_F(PeerReduceTest, JoinsTheResidualStreamAndNormalises) {
  const size_t most = 33 * 7168 * sizeof(float);
  Peers peers(4, std::max(one_shot_words(4, most), two_shot_words(4, most)));
  for (const bool two_shot : {false, true}) {
    for (const auto& [tokens, hidden] : std::vector<std::pair<size_t, size_t>>{
             {1, 1}, {1, 31}, {3, 33}, {5, 257}, {1, 7168}, {33, 7168}, {31, 2048}}) {
      expect_joined<bf16>(peers, tokens, hidden, two_shot, true);
      expect_joined<f16>(peers, tokens, hidden, two_shot, false);
      expect_joined<float>(peers, tokens, hidden, two_shot, true);
    }
  }
}

// Every replay sums what the one before left.
TEST_F(PeerReduceTest, CountsOnThroughReplaysOfAGraph) {
  constexpr size_t kRanks = 2, kReplays = 700, n = 4097;
  Peers peers(kRanks, two_shot_words(kRanks, n * sizeof(float)) + 128);
  std::vector<GpuBuffer> data;
  std::vector<GpuGraph> graphs;
  for (size_t r = 0; r < kRanks; ++r) {
    data.emplace_back(n * sizeof(float));
    to_gpu(data[r], std::vector<float>(n, 0x1p-100f));
    graphs.emplace_back(peers.stream(r), [&] {
      for (const size_t length : {size_t{100}, n, size_t{1}}) {
        GpuPeerSum sum;
        sum.group = peers.group(r);
        sum.data = {data[r].data(), DType::f32};
        sum.n = length;
        sum.two_shot = length == n;
        gpu_peer_sum(sum, peers.stream(r));
      }
    });
  }
  // Each sum doubles; every 50 replays the values are looked at and start over.
  for (size_t replay = 0; replay < kReplays; ++replay) {
    for (size_t r = 0; r < kRanks; ++r) graphs[r].launch(peers.stream(r));
    if (replay % 50 != 49) continue;
    ASSERT_TRUE(peers.finish(kRanks)) << "replay " << replay << ": stuck";
    for (size_t r = 0; r < kRanks; ++r) {
      std::vector<float> expected(n, 0x1p-50f);
      for (size_t i = 0; i < 100; ++i) expected[i] = 1.0f;
      expected[0] = 0x1p50f;
      expect_same_bits(from_gpu<float>(data[r], n), expected, "replay " + std::to_string(replay));
      to_gpu(data[r], std::vector<float>(n, 0x1p-100f));
    }
  }
}

TEST_F(PeerReduceTest, EndsAWaitForAPeerThatDoesNotCome) {
  Peers peers(2, 1024);
  GpuBuffer data(64 * sizeof(float));
  for (const bool two_shot : {false, true}) {
    GpuPeerSum sum;
    sum.group = peers.group(0);
    sum.data = {data.data(), DType::f32};
    sum.n = 64;
    sum.two_shot = two_shot;
    gpu_peer_sum(sum, peers.stream(0));
    GpuEvent done;
    done.record(peers.stream(0));
    if (!two_shot) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_FALSE(done.happened());
      peers.abort();
    }
    EXPECT_TRUE(peers.finish(1));
  }
}

TEST_F(PeerReduceTest, SumsGatheredPartsAsTheTree) {
  const size_t n = 1037;
  for (const size_t ranks : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{8}, size_t{56}}) {
    const auto all = values_of_ranks<bf16>(ranks, n, 5);
    GpuBuffer parts(ranks * n * sizeof(bf16)), mine(n * sizeof(bf16)), out(n * sizeof(bf16));
    for (size_t r = 0; r < ranks; ++r)
      copy_bytes(parts.data() + r * n * sizeof(bf16), all[r].data(), n * sizeof(bf16), nullptr);
    to_gpu(mine, all[ranks / 2]);
    clear_bytes(parts.data() + ranks / 2 * n * sizeof(bf16), n * sizeof(bf16), nullptr);
    GpuTreeSum sum;
    sum.parts = {parts.data(), DType::bf16};
    sum.mine = mine.data();
    sum.rank = static_cast<int>(ranks / 2);
    sum.ranks = static_cast<int>(ranks);
    sum.stride = n;
    sum.out = out.data();
    sum.n = n;
    gpu_tree_sum(sum, nullptr);
    expect_same_bits(from_gpu<bf16>(out, n), tree_sums(all), std::to_string(ranks) + " ranks");
  }
}

}  // namespace
}  // namespace weft::kernels
