// Every operation on every number of ranks: sums whose result is exact compared bit for bit, sums
// of random floats against the same tree evaluated on one rank.
#include "parallel/host_communicator.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "parallel/message_list.h"
#include "tests/support/allocations.h"
#include "tests/support/mpi_test.h"

namespace weft::parallel {
namespace {

using testing::session;

const std::vector<size_t> kSizes = {0, 1, 31, 33, 2048, 7168, 100003};
constexpr size_t kScratchBytes = 8 * 100003 * sizeof(float);

// The operations take a stream and don't use its pool: they run on the calling thread.
kernels::Stream& stream() {
  static char no_pool;
  static kernels::Stream one(reinterpret_cast<kernels::ThreadPool&>(no_pool));
  return one;
}

std::vector<int> all_ranks() {
  std::vector<int> ranks(static_cast<size_t>(session().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class HostCommunicatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    comm_ = make_host_communicator(session(), all_ranks(), 0, kScratchBytes);
  }
  void TearDown() override {
    if (closes_) comm_->close();
  }

  int rank() const { return comm_->rank(); }
  int size() const { return comm_->size(); }
  size_t ranks() const { return static_cast<size_t>(comm_->size()); }

  std::unique_ptr<Communicator> comm_;
  bool closes_ = true;
};

std::vector<float> random_floats(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 100.0f);
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

// Recursive on purpose: the sum of ranks [first, first + n) by halves.
float tree_of(const std::vector<std::vector<float>>& all, size_t i, size_t first, size_t n) {
  if (n == 1) return all[first][i];
  const size_t left = std::bit_ceil(n) / 2;
  return tree_of(all, i, first, left) + tree_of(all, i, first + left, n - left);
}

template <class T>
void expect_exact_sums(Communicator& comm) {
  const int size = comm.size();
  for (const size_t n : kSizes) {
    std::vector<T> data(n);
    for (size_t i = 0; i < n; ++i) {
      data[i] = from_float<T>(static_cast<float>((i + static_cast<size_t>(comm.rank())) % 13));
    }
    comm.all_reduce(data.data(), n, dtype_of<T>::value, stream());
    for (size_t i = 0; i < n; ++i) {
      size_t sum = 0;
      for (int r = 0; r < size; ++r) sum += (i + static_cast<size_t>(r)) % 13;
      ASSERT_EQ(to_float(data[i]), static_cast<float>(sum)) << "element " << i << " of " << n;
    }
  }
}

TEST_F(HostCommunicatorTest, AllReduceIsExactOnIntegers) {
  expect_exact_sums<float>(*comm_);
  expect_exact_sums<bf16>(*comm_);
  expect_exact_sums<f16>(*comm_);
}

TEST_F(HostCommunicatorTest, AllReduceGivesTheSameBitsOnAllRanks) {
  for (const size_t n : kSizes) {
    const std::vector<float> mine = random_floats(n, static_cast<unsigned>(rank()));
    std::vector<bf16> data(n);
    for (size_t i = 0; i < n; ++i) data[i] = round_bf16(mine[i]);
    comm_->all_reduce(data.data(), n, DType::bf16, stream());
    std::vector<bf16> all(n * ranks());
    comm_->all_gather(data.data(), all.data(), n * sizeof(bf16), stream());
    for (size_t r = 0; n > 0 && r < ranks(); ++r) {
      EXPECT_EQ(std::memcmp(&all[r * n], data.data(), n * sizeof(bf16)), 0) << n << " rank " << r;
    }
  }
}

TEST_F(HostCommunicatorTest, AllReduceTreeIsTheTree) {
  if (!std::has_single_bit(ranks())) {
    float x = 1;
    EXPECT_THROW(comm_->all_reduce_tree(&x, 1, stream()), Error);
    return;
  }
  for (const size_t n : kSizes) {
    std::vector<std::vector<float>> all;
    for (int r = 0; r < size(); ++r)
      all.push_back(random_floats(n, static_cast<unsigned>(100 + r)));
    std::vector<float> data = all[static_cast<size_t>(rank())];
    comm_->all_reduce_tree(data.data(), n, stream());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(data[i], tree_of(all, i, 0, ranks())) << "element " << i << " of " << n;
    }
  }
}

TEST_F(HostCommunicatorTest, RefusesASumLargerThanItsScratch) {
  std::vector<float> data(kScratchBytes / sizeof(float) + 1);
  EXPECT_THROW(comm_->all_reduce(data.data(), data.size(), DType::f32, stream()), Error);
}

TEST_F(HostCommunicatorTest, AllGatherApartAndInPlace) {
  for (const size_t bytes : kSizes) {
    std::vector<uint8_t> mine(bytes);
    for (size_t i = 0; i < bytes; ++i)
      mine[i] = static_cast<uint8_t>(i * 7 + 31 * ranks() + static_cast<size_t>(rank()));
    std::vector<uint8_t> apart(bytes * ranks());
    comm_->all_gather(mine.data(), apart.data(), bytes, stream());
    std::vector<uint8_t> in_place(bytes * ranks());
    uint8_t* place = in_place.data() + static_cast<size_t>(rank()) * bytes;
    if (bytes > 0) std::memcpy(place, mine.data(), bytes);
    comm_->all_gather(place, in_place.data(), bytes, stream());
    for (size_t r = 0; r < ranks(); ++r) {
      for (size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(apart[r * bytes + i], static_cast<uint8_t>(i * 7 + 31 * ranks() + r))
            << r << " " << i;
      }
    }
    EXPECT_EQ(in_place, apart);
  }
}

TEST_F(HostCommunicatorTest, ReduceScatterIsTheTreeOfOwnPart) {
  for (const size_t n : kSizes) {
    std::vector<std::vector<float>> all;
    for (int r = 0; r < size(); ++r) {
      all.push_back(random_floats(n * ranks(), static_cast<unsigned>(200 + r)));
    }
    std::vector<float> out(n);
    comm_->reduce_scatter(all[static_cast<size_t>(rank())].data(), out.data(), n, stream());
    for (size_t i = 0; i < n; ++i) {
      const size_t at = static_cast<size_t>(rank()) * n + i;
      ASSERT_EQ(out[i], tree_of(all, at, 0, ranks())) << "element " << i << " of " << n;
    }
  }
}

TEST_F(HostCommunicatorTest, AllToAllTransposes) {
  for (const size_t bytes : kSizes) {
    std::vector<uint8_t> in(bytes * ranks());
    std::vector<uint8_t> out(bytes * ranks());
    const auto value = [&](size_t from, size_t to, size_t i) {
      return static_cast<uint8_t>(from * 59 + to * 17 + i * 3);
    };
    const auto me = static_cast<size_t>(rank());
    for (size_t k = 0; k < in.size(); ++k) in[k] = value(me, k / bytes, k % bytes);
    comm_->all_to_all(in.data(), out.data(), bytes, stream());
    for (size_t k = 0; k < out.size(); ++k) {
      ASSERT_EQ(out[k], value(k / bytes, me, k % bytes)) << k << " of " << bytes;
    }
  }
}

TEST_F(HostCommunicatorTest, BroadcastFromEveryRoot) {
  for (const size_t n : kSizes) {
    for (int root = 0; root < size(); ++root) {
      const std::vector<float> truth = random_floats(n, static_cast<unsigned>(root) + 1000);
      std::vector<float> data = rank() == root ? truth : std::vector<float>(n);
      comm_->broadcast(data.data(), n * sizeof(float), root, stream());
      EXPECT_EQ(data, truth) << n << " from " << root;
    }
  }
}

// What travels from a rank to another: a different length and different bytes for each pair.
std::vector<uint8_t> letter(int from, int to, int number) {
  const auto a = static_cast<size_t>(from);
  const auto b = static_cast<size_t>(to);
  const auto c = static_cast<size_t>(number);
  std::vector<uint8_t> bytes((a * 1000 + b * 37 + c * 5501) % 20011);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i + a * 3 + b * 5 + c);
  return bytes;
}

// Letters to and from every rank, oneself included.
struct Letters {
  Letters(int me, int size, int number) {
    for (int peer = 0; peer < size; ++peer) {
      sent.push_back(letter(me, peer, number));
      expected.push_back(letter(peer, me, number));
      received.emplace_back(expected.back().size());
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      const int peer = static_cast<int>(i);
      transfers.push_back({Transfer::Kind::send, peer, sent[i].data(), sent[i].size()});
      transfers.push_back({Transfer::Kind::recv, peer, received[i].data(), received[i].size()});
    }
  }
  std::vector<std::vector<uint8_t>> sent, expected, received;
  std::vector<Transfer> transfers;
};

TEST_F(HostCommunicatorTest, ExchangesAmongAllPairs) {
  for (int number = 0; number < 5; ++number) {
    Letters letters(rank(), size(), number);
    comm_->exchange(letters.transfers, stream());
    EXPECT_EQ(letters.received, letters.expected) << number;
  }
  comm_->exchange({}, stream());
}

TEST_F(HostCommunicatorTest, KeepsTheOrderOfExchangesInFlight) {
  std::vector<Letters> all;
  for (int number = 0; number < 12; ++number) all.emplace_back(rank(), size(), number);
  std::vector<Ticket> tickets;
  for (Letters& letters : all) {
    tickets.push_back(comm_->start(letters.transfers, stream()));
    // Collectives pass by the exchanges in flight.
    float one = 1;
    comm_->all_reduce(&one, 1, DType::f32, stream());
    EXPECT_EQ(one, static_cast<float>(size()));
  }
  // Completed from both ends, some by test().
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t k = i % 2 == 0 ? i / 2 : all.size() - 1 - i / 2;
    if (i % 3 == 0) {
      while (!comm_->test(tickets[k])) continue;
    } else {
      comm_->wait(tickets[k], stream());
    }
    EXPECT_EQ(all[k].received, all[k].expected) << k;
  }
  EXPECT_THROW(comm_->wait(tickets[0], stream()), std::logic_error) << "its ticket is spent";
}

TEST_F(HostCommunicatorTest, BoundsExchangesInFlight) {
  std::vector<Ticket> tickets;
  for (int i = 0; i < 16; ++i) tickets.push_back(comm_->start({}, stream()));
  EXPECT_THROW(comm_->start({}, stream()), Error);
  comm_->wait(tickets[7], stream());
  tickets[7] = comm_->start({}, stream());
  for (const Ticket ticket : tickets) comm_->wait(ticket, stream());
  const std::vector<Transfer> too_many(10'000);
  EXPECT_THROW(comm_->start(too_many, stream()), Error);
}

// On ranks 0 and 1: 0 sends `sent` bytes where 1 expects `expected`. The text of 1's error.
std::string mismatch(Communicator& comm, size_t sent, size_t expected) {
  std::vector<std::byte> data(std::max(sent, expected));
  Transfer transfer{Transfer::Kind::send, 1, data.data(), sent};
  if (comm.rank() == 1) transfer = {Transfer::Kind::recv, 0, data.data(), expected};
  if (comm.rank() > 1) return "";
  try {
    comm.exchange(std::span(&transfer, 1), stream());
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_F(HostCommunicatorTest, ReportsMessagesOfAnotherSize) {
  if (size() == 1) GTEST_SKIP() << "needs 2 ranks";
  closes_ = false;  // what failed stays in flight
  for (const auto& [sent, expected] :
       {std::pair<size_t, size_t>{12, 16}, {16, 12}, {0, 4}, {200'000, 16}}) {
    const std::string text = mismatch(*comm_, sent, expected);
    EXPECT_EQ(text.find("disagree") != std::string::npos, rank() == 1)
        << sent << " for " << expected << ": " << text;
  }
}

TEST(HostCommunicators, GroupsWorkApartAndTogether) {
  std::vector<int> half;  // ranks of the same parity, from the highest
  for (int r = session().size() - 1; r >= 0; --r) {
    if (r % 2 == session().rank() % 2) half.push_back(r);
  }
  const auto all = make_host_communicator(session(), all_ranks(), 1, 1 << 16);
  const auto some = make_host_communicator(session(), half, 2, 1 << 16);
  ASSERT_EQ(some->size(), static_cast<int>(half.size()));
  EXPECT_EQ(half[static_cast<size_t>(some->rank())], session().rank());
  for (int round = 0; round < 50; ++round) {
    float x = static_cast<float>(session().rank() + round);
    float y = x;
    all->all_reduce(&x, 1, DType::f32, stream());
    some->all_reduce(&y, 1, DType::f32, stream());
    float sum_all = 0;
    float sum_half = 0;
    for (int r = 0; r < session().size(); ++r) sum_all += static_cast<float>(r + round);
    for (const int r : half) sum_half += static_cast<float>(r + round);
    ASSERT_EQ(x, sum_all);
    ASSERT_EQ(y, sum_half);
  }
  some->close();
  all->close();
}

TEST_F(HostCommunicatorTest, TakesNoMemoryInAnOperation) {
  const size_t n = 40'000;
  std::vector<float> in(n * ranks());
  std::vector<float> out(n * ranks());
  Letters letters(rank(), size(), 3);
  for (int round = 0; round < 3; ++round) {
    const size_t before = testing::n_allocations();
    comm_->all_reduce(in.data(), n, DType::f32, stream());
    comm_->all_reduce(in.data(), 5, DType::bf16, stream());
    comm_->all_gather(in.data(), out.data(), 1000, stream());
    comm_->reduce_scatter(in.data(), out.data(), n, stream());
    comm_->all_to_all(in.data(), out.data(), 1000, stream());
    comm_->broadcast(in.data(), 1000, 0, stream());
    const Ticket ticket = comm_->start(letters.transfers, stream());
    while (!comm_->test(ticket)) continue;
    comm_->exchange(letters.transfers, stream());
    EXPECT_EQ(testing::n_allocations(), before);
  }
}

// A wire that cuts at 64 bytes stands for the one that cuts at INT_MAX.
TEST(MessageList, CutsLongMessages) {
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_dup(session().world(), &comm), "MPI_Comm_dup");
  MPI_Datatype block = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(16, MPI_BYTE, &block), "MPI_Type_contiguous");
  check(MPI_Type_commit(&block), "MPI_Type_commit");
  MessageList messages({comm, 3, block, 16, 64}, 2);
  const int to = (session().rank() + 1) % session().size();
  const int from = (session().rank() + session().size() - 1) % session().size();
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{80},
                             size_t{81}, size_t{100'003}}) {
    std::vector<uint8_t> sent(bytes);
    std::vector<uint8_t> got(bytes);
    for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<uint8_t>(i * 11 + bytes);
    messages.recv(got.data(), bytes, from);
    messages.send(sent.data(), bytes, to);
    messages.wait();
    EXPECT_TRUE(messages.empty());
    EXPECT_EQ(got, sent) << bytes;
  }
  // 80 bytes in blocks and no rest, where 81 are expected.
  std::vector<uint8_t> data(81);
  std::vector<uint8_t> got(81);
  messages.recv(got.data(), 81, from);
  messages.send(data.data(), 80, to);
  EXPECT_THROW(messages.wait(), Error);
  check(MPI_Type_free(&block), "MPI_Type_free");
}

}  // namespace
}  // namespace weft::parallel
