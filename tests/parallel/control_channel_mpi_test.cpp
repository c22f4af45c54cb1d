// Messages of many lengths in order from one rank to others, with rings shorter than the traffic.
#include "parallel/control_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/allocations.h"
#include "tests/support/mpi_test.h"

namespace weft::parallel {
namespace {

using testing::session;

constexpr size_t kMaxBytes = 20'000;
constexpr size_t kDepth = 3;

size_t length_of(size_t number) { return number * 2711 % (kMaxBytes + 1); }
std::byte byte_of(size_t number, size_t i) { return static_cast<std::byte>(number * 7 + i); }

void send(ControlSender& sender, size_t number) {
  const std::span<std::byte> buffer = sender.buffer();
  ASSERT_EQ(buffer.size(), kMaxBytes);
  for (size_t i = 0; i < length_of(number); ++i) buffer[i] = byte_of(number, i);
  sender.send(length_of(number));
}

void expect_message(std::span<const std::byte> message, size_t number) {
  ASSERT_EQ(message.size(), length_of(number)) << number;
  for (size_t i = 0; i < message.size(); ++i) {
    ASSERT_EQ(message[i], byte_of(number, i)) << number << " at " << i;
  }
}

std::vector<int> ranks_except(int rank) {
  std::vector<int> ranks;
  for (int r = 0; r < session().size(); ++r) {
    if (r != rank) ranks.push_back(r);
  }
  return ranks;
}

TEST(ControlChannel, CarriesMessagesInOrder) {
  for (const int root : {0, session().size() - 1}) {
    ControlChannel channel(session(), root, ranks_except(root), kMaxBytes, kDepth);
    for (size_t number = 0; number < 100; ++number) {
      if (session().rank() == root) {
        send(channel.sender(), number);
      } else {
        expect_message(channel.receiver().wait(), number);
        channel.receiver().release();
      }
    }
    channel.close();
  }
}

TEST(ControlChannel, KeepsMessagesUntilTheirRelease) {
  ControlChannel channel(session(), 0, ranks_except(0), kMaxBytes, kDepth);
  if (session().rank() == 0) {
    for (size_t number = 0; number < 6; ++number) send(channel.sender(), number);
  } else {
    ControlReceiver& receiver = channel.receiver();
    for (size_t number = 0; number < 6; number += kDepth) {
      std::vector<std::span<const std::byte>> held;
      for (size_t i = 0; i < kDepth; ++i) held.push_back(receiver.wait());
      EXPECT_THROW(receiver.test(), std::logic_error) << "no receive is posted";
      for (size_t i = 0; i < kDepth; ++i) expect_message(held[i], number + i);
      for (size_t i = 0; i < kDepth; ++i) receiver.release();
    }
    EXPECT_THROW(receiver.release(), std::logic_error);
    EXPECT_FALSE(receiver.test().has_value());
  }
  channel.close();
}

// Batches out and tokens back at once, as the engine does; the last rank answers, also to itself.
TEST(ControlChannel, GoesBothWays) {
  const int last = session().size() - 1;
  const std::vector<int> back_to = last == 0 ? std::vector<int>{0} : std::vector<int>{0, last};
  ControlChannel out(session(), 0, std::vector<int>{last}, kMaxBytes, kDepth);
  ControlChannel back(session(), last, back_to, kMaxBytes, kDepth);
  for (size_t number = 0; number < 50; ++number) {
    if (session().rank() == 0) send(out.sender(), number);
    if (session().rank() == last) {
      expect_message(out.receiver().wait(), number);
      out.receiver().release();
      send(back.sender(), number + 1);
    }
    if (session().rank() == 0 || session().rank() == last) {
      expect_message(back.receiver().wait(), number + 1);
      back.receiver().release();
    }
  }
  back.close();
  out.close();
}

TEST(ControlChannel, RefusesTheWrongEndAndLength) {
  ControlChannel channel(session(), 0, ranks_except(0), kMaxBytes, kDepth);
  if (session().rank() == 0) {
    EXPECT_THROW(channel.receiver(), std::logic_error);
    EXPECT_THROW(channel.sender().send(kMaxBytes + 1), std::logic_error);
  } else {
    EXPECT_THROW(channel.sender(), std::logic_error);
  }
  channel.close();
}

TEST(ControlChannel, TakesNoMemoryInTheSteadyState) {
  ControlChannel channel(session(), 0, ranks_except(0), kMaxBytes, kDepth);
  const size_t before = testing::n_allocations();
  for (size_t number = 0; number < 20; ++number) {
    if (session().rank() == 0) {
      channel.sender().buffer()[0] = std::byte{1};
      channel.sender().send(100);
    } else {
      channel.receiver().wait();
      channel.receiver().release();
    }
  }
  EXPECT_EQ(testing::n_allocations(), before);
  channel.close();
}

}  // namespace
}  // namespace weft::parallel
