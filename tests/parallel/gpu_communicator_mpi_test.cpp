// Every communicator of GPU memory, against the one of host memory on the same numbers: sums that
// are exact in any order bit for bit, sums by the tree on random floats too.
#include "parallel/gpu_communicator.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels/gpu_device.h"
#include "kernels/gpu_devices.h"
#include "parallel/group_agreement.h"
#include "parallel/host_communicator.h"
#include "parallel/nccl_communicator.h"
#include "parallel/nccl_library.h"
#include "parallel/peer_communicator.h"
#include "tests/support/mpi_test.h"

namespace weft::parallel {
namespace {

using kernels::copy_bytes;
using kernels::GpuBuffer;
using testing::session;

const std::vector<size_t> kSizes = {0, 1, 31, 33, 2048, 7168, 100'003};
constexpr size_t kMost = 8 * 100'003 * sizeof(float);
constexpr int kNcclForSharedGpus = 23003;

std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<size_t>(session().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The CPU's, which operations of the host's communicator ignore.
kernels::ThreadPool& pool() {
  static kernels::ThreadPool one(1);
  return one;
}

std::vector<float> random_floats(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 100.0f);
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

std::vector<uint8_t> letter(int from, int to, size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i)
    data[i] =
        static_cast<uint8_t>(i * 7 + static_cast<size_t>(from) * 31 + static_cast<size_t>(to));
  return data;
}

template <class T>
GpuBuffer on_gpu(const std::vector<T>& values, kernels::CudaStream stream) {
  GpuBuffer buffer(std::max<size_t>(1, values.size() * sizeof(T)));
  copy_bytes(buffer.data(), values.data(), values.size() * sizeof(T), stream);
  return buffer;
}

template <class T>
std::vector<T> from_gpu(const GpuBuffer& buffer, size_t n, kernels::CudaStream stream) {
  std::vector<T> values(n);
  copy_bytes(values.data(), buffer.data(), n * sizeof(T), stream);
  kernels::synchronise(stream);
  return values;
}

template <class T>
float* floats(const T& buffer) {
  return reinterpret_cast<float*>(buffer.data());
}

class GpuCommunicatorTest : public ::testing::TestWithParam<GpuTransport> {
 protected:
  void SetUp() override {
    const kernels::GpuQuery query = kernels::query_gpus();
    if (query.gpus.empty()) GTEST_SKIP() << "no GPU: " << query.why_none;
    const auto gpus = static_cast<int>(query.gpus.size());
    kernels::select_gpu(session().node_rank() % gpus);
    const bool shared = session().node_size() > gpus;
    if (GetParam() == GpuTransport::nccl && !nccl_works(shared)) return;
    gpu_stream_.emplace();
    stream_.emplace(pool(), gpu_stream_->get());
    host_ = make_host_communicator(session(), all_ranks(), 10, kMost);
    GpuCommunicatorOptions options;
    options.transport = GetParam();
    options.shares_gpu = shared;
    options.sum_bytes = kMost;
    options.staging = {2 * kMost, 2 * kMost};
    comm_ = make_gpu_communicator(session(), all_ranks(), 11, options, *stream_).communicator;
  }
  void TearDown() override {
    if (comm_ == nullptr) return;
    comm_->close();
    host_->close();
  }

  // Skips, with the reason, where NCCL can't be had.
  bool nccl_works(bool shared) {
    try {
      const NcclLibrary library;
      if (!shared) return true;
      const char* allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
      if (library.version() >= kNcclForSharedGpus && allowed != nullptr && *allowed == '1')
        return true;
      skip("ranks that share a GPU need NCCL 2.30.3 and NCCL_MULTI_RANK_GPU_ENABLE=1; this is " +
           nccl_version_text(library.version()));
    } catch (const Error& e) {
      skip(e.what());
    }
    return false;
  }
  static void skip(const std::string& why) { GTEST_SKIP() << why; }

  kernels::CudaStream gpu() const { return gpu_stream_->get(); }
  kernels::Stream& stream() { return *stream_; }
  int rank() const { return comm_->rank(); }
  size_t ranks() const { return static_cast<size_t>(comm_->size()); }

  template <class T>
  void expect_exact_sums();

  std::optional<kernels::GpuStream> gpu_stream_;
  std::optional<kernels::Stream> stream_;
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> comm_;
};

template <class T>
void GpuCommunicatorTest::expect_exact_sums() {
  for (const size_t n : kSizes) {
    std::vector<T> data(n);
    for (size_t i = 0; i < n; ++i)
      data[i] = from_float<T>(static_cast<float>((i + static_cast<size_t>(rank())) % 13));
    GpuBuffer there = on_gpu(data, gpu());
    comm_->all_reduce(there.data(), n, dtype_of<T>::value, stream());
    host_->all_reduce(data.data(), n, dtype_of<T>::value, stream());
    const std::vector<T> got = from_gpu<T>(there, n, gpu());
    EXPECT_TRUE(n == 0 || std::memcmp(got.data(), data.data(), n * sizeof(T)) == 0)
        << n << " of " << dtype_name(dtype_of<T>::value);
  }
}

TEST_P(GpuCommunicatorTest, AllReduceIsExactOnIntegers) {
  expect_exact_sums<float>();
  expect_exact_sums<bf16>();
  expect_exact_sums<f16>();
}

TEST_P(GpuCommunicatorTest, AllReduceTreeHasTheHostsBits) {
  for (const size_t n : kSizes) {
    std::vector<float> data = random_floats(n, static_cast<unsigned>(100 + rank()));
    GpuBuffer there = on_gpu(data, gpu());
    comm_->all_reduce_tree(floats(there), n, stream());
    host_->all_reduce_tree(data.data(), n, stream());
    EXPECT_EQ(from_gpu<float>(there, n, gpu()), data) << n;
  }
}

TEST_P(GpuCommunicatorTest, GathersScattersAndBroadcastsAsTheHost) {
  for (const size_t n : kSizes) {
    const size_t bytes = n * sizeof(float);
    const std::vector<float> mine = random_floats(n, static_cast<unsigned>(rank()));
    std::vector<float> all(n * ranks()), sum(n), ones(n * ranks(), 1.0f);
    GpuBuffer mine_there = on_gpu(mine, gpu()), all_there = on_gpu(all, gpu());
    GpuBuffer sum_there = on_gpu(sum, gpu()), ones_there = on_gpu(ones, gpu());
    host_->all_gather(mine.data(), all.data(), bytes, stream());
    comm_->all_gather(mine_there.data(), all_there.data(), bytes, stream());
    EXPECT_EQ(from_gpu<float>(all_there, all.size(), gpu()), all) << n;
    comm_->reduce_scatter(floats(ones_there), floats(sum_there), n, stream());
    EXPECT_EQ(from_gpu<float>(sum_there, n, gpu()),
              std::vector<float>(n, static_cast<float>(ranks())));
    for (int root = 0; root < comm_->size(); ++root) {
      std::vector<float> truth = random_floats(n, static_cast<unsigned>(1000 + root));
      copy_bytes(sum_there.data(), (rank() == root ? truth : mine).data(), bytes, gpu());
      comm_->broadcast(sum_there.data(), bytes, root, stream());
      EXPECT_EQ(from_gpu<float>(sum_there, n, gpu()), truth) << n << " from " << root;
    }
  }
}

TEST_P(GpuCommunicatorTest, AllToAllTransposes) {
  for (const size_t bytes : kSizes) {
    std::vector<uint8_t> in, expected;
    for (int r = 0; r < comm_->size(); ++r) {
      const std::vector<uint8_t> out = letter(rank(), r, bytes), back = letter(r, rank(), bytes);
      in.insert(in.end(), out.begin(), out.end());
      expected.insert(expected.end(), back.begin(), back.end());
    }
    GpuBuffer in_there = on_gpu(in, gpu()), out_there = on_gpu(in, gpu());
    comm_->all_to_all(in_there.data(), out_there.data(), bytes, stream());
    EXPECT_EQ(from_gpu<uint8_t>(out_there, in.size(), gpu()), expected) << bytes;
  }
}

// Around a ring, several in flight, awaited from both ends.
TEST_P(GpuCommunicatorTest, ExchangesOverlapAndKeepTheirOrder) {
  if (ranks() == 1) GTEST_SKIP() << "needs 2 ranks";
  const int to = (rank() + 1) % comm_->size(), from = (rank() + comm_->size() - 1) % comm_->size();
  std::vector<GpuBuffer> sent, got;
  std::vector<Ticket> tickets;
  constexpr size_t kExchanges = 4;
  const auto bytes = [](size_t i) { return 20'011 * i + i % 2; };
  for (size_t i = 0; i < kExchanges; ++i) {
    sent.push_back(on_gpu(letter(rank(), to, bytes(i)), gpu()));
    got.push_back(on_gpu(std::vector<uint8_t>(bytes(i)), gpu()));
    const Transfer transfers[] = {{Transfer::Kind::send, to, sent[i].data(), bytes(i)},
                                  {Transfer::Kind::recv, from, got[i].data(), bytes(i)}};
    tickets.push_back(comm_->start(transfers, stream()));
  }
  while (!comm_->test(tickets[1])) std::this_thread::yield();
  for (const size_t i : {size_t{3}, size_t{0}, size_t{2}}) comm_->wait(tickets[i], stream());
  for (size_t i = 0; i < kExchanges; ++i)
    EXPECT_EQ(from_gpu<uint8_t>(got[i], bytes(i), gpu()), letter(from, rank(), bytes(i))) << i;
  comm_->poll();
}

TEST_P(GpuCommunicatorTest, SumsReplayInAGraph) {
  constexpr size_t n = 7168;
  if (comm_->capturable_sum_bytes() < n * sizeof(float)) GTEST_SKIP() << "it can't be recorded";
  const std::vector<float> mine = random_floats(n, static_cast<unsigned>(rank()));
  std::vector<float> expected = mine;
  host_->all_reduce_tree(expected.data(), n, stream());
  GpuBuffer source = on_gpu(mine, gpu()), data = on_gpu(mine, gpu());
  comm_->all_reduce_tree(floats(data), n, stream());  // connects
  kernels::synchronise(gpu());
  const kernels::GpuGraph graph(gpu(), [&] {
    for (int i = 0; i < 3; ++i) {
      copy_bytes(data.data(), source.data(), n * sizeof(float), gpu());
      comm_->all_reduce_tree(floats(data), n, stream());
    }
  });
  for (int replay = 0; replay < 60; ++replay) {
    kernels::clear_bytes(data.data(), n * sizeof(float), gpu());
    graph.launch(gpu());
    ASSERT_EQ(from_gpu<float>(data, n, gpu()), expected) << "replay " << replay;
  }
}

TEST_P(GpuCommunicatorTest, JoinsTheResidualWhereItCan) {
  constexpr size_t kTokens = 3, kHidden = 1031, n = kTokens * kHidden;
  std::vector<float> sum = random_floats(n, static_cast<unsigned>(rank()));
  const std::vector<float> before = random_floats(n, 999);
  GpuBuffer partial = on_gpu(sum, gpu()), residual = on_gpu(before, gpu());
  ResidualSum args;
  args.partial = floats(partial);
  args.residual = floats(residual);
  args.tokens = kTokens;
  args.hidden = kHidden;
  const bool done = comm_->all_reduce_residual(args, stream());
  EXPECT_EQ(done, GetParam() == GpuTransport::peer && ranks() > 1);
  if (!done) return;
  host_->all_reduce_tree(sum.data(), n, stream());
  for (size_t i = 0; i < n; ++i) sum[i] += before[i];
  EXPECT_EQ(from_gpu<float>(residual, n, gpu()), sum);
}

std::string kind_name(const ::testing::TestParamInfo<GpuTransport>& info) {
  if (info.param == GpuTransport::nccl) return "Nccl";
  return info.param == GpuTransport::host ? "Host" : "Peer";
}
INSTANTIATE_TEST_SUITE_P(Kinds, GpuCommunicatorTest,
                         ::testing::Values(GpuTransport::nccl, GpuTransport::host,
                                           GpuTransport::peer),
                         kind_name);

// Below, what a machine without a GPU shows as well.

TEST(GroupAgreement, TellsEveryRankOfTheLowestFailure) {
  const auto host = make_host_communicator(session(), all_ranks(), 20, 0);
  kernels::Stream stream(pool());
  EXPECT_EQ(failure_in_group(*host, stream, [] {}), "");
  const int last = session().size() - 1;
  const std::string text = failure_in_group(*host, stream, [&] {
    if (session().rank() == last) throw run_error("no room on {}", last);
  });
  const std::string whose =
      last == 0 ? "" : "rank " + std::to_string(last) + " of " + std::to_string(last + 1) + ": ";
  EXPECT_EQ(text, whose + "no room on " + std::to_string(last));
  EXPECT_THROW(agree_in_group(*host, stream, [] { throw run_error("{}", std::string(5000, 'x')); }),
               AgreedError);
  wait_for_group(*host, stream);
  host->close();
}

TEST(PeerMemory, SaysOnEveryRankWhyItCannotBeHad) {
  if (!kernels::query_gpus().gpus.empty() && session().size() > 1)
    GTEST_SKIP() << "there is a GPU: it can be had";
  const auto host = make_host_communicator(session(), all_ranks(), 21, 0);
  kernels::Stream stream(pool());
  std::string why_not;
  EXPECT_EQ(PeerMemory::make(*host, 1024, stream, why_not), nullptr);
  const std::string expected = session().size() == 1
                                   ? "groups of 2 to 8 ranks"
                                   : "rank 0 of " + std::to_string(session().size());
  EXPECT_NE(why_not.find(expected), std::string::npos) << why_not;
  host->close();
}

TEST(NcclCommunicators, SayOnEveryRankThatNcclIsMissing) {
  kernels::Stream stream(pool());
  NcclOptions options;
  options.library = "libno_such_nccl.so.2";
  EXPECT_THROW(make_nccl_communicator(make_host_communicator(session(), all_ranks(), 22, 0),
                                      options, stream),
               AgreedError);
}

}  // namespace
}  // namespace weft::parallel
