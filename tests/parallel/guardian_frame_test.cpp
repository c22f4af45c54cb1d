// Frames between guardians: whole, in order, from the other guardian, or not at all.
#include "parallel/guardian_frame.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

const std::string kSecret = "a secret of this job";

Tag key(std::string_view sender = "lead") {
  return stream_key(kSecret, sender, std::string(16, 'a'), std::string(16, 'b'));
}

TEST(GuardianFrame, ComesBackAsItWasHoweverItIsCut) {
  FrameWriter writer(key());
  std::vector<Frame> sent = {{FrameKind::hello, 0, 3, 0, "rank 3 (host b, CPU)"},
                             {FrameKind::heartbeat, 3, 7, 2, ""},
                             {FrameKind::failure, 5, 4294967295u, -1, std::string(4096, 'x')},
                             {FrameKind::verdict, 0, 0, 137, std::string("a\0b", 3)}};
  std::string bytes;
  for (const Frame& frame : sent) bytes += writer.seal(frame);
  for (const size_t piece : {size_t{1}, size_t{31}, size_t{4096}, bytes.size()}) {
    FrameReader reader(key());
    std::vector<Frame> got;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.push(std::string_view(bytes).substr(at, piece));
      while (auto frame = reader.next()) got.push_back(*frame);
    }
    ASSERT_EQ(got.size(), sent.size()) << "in pieces of " << piece;
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(got[i].kind, sent[i].kind);
      EXPECT_EQ(got[i].flags, sent[i].flags);
      EXPECT_EQ(got[i].rank, sent[i].rank);
      EXPECT_EQ(got[i].status, sent[i].status);
      EXPECT_EQ(got[i].text, sent[i].text);
    }
  }
}

TEST(GuardianFrame, CutsTextThatIsTooLong) {
  FrameWriter writer(key());
  FrameReader reader(key());
  reader.push(writer.seal({FrameKind::failure, 0, 0, 1, std::string(100'000, 'x')}));
  EXPECT_EQ(reader.next()->text.size(), kMostFrameText);
}

// Whatever bit is turned: no frame of it is taken for one.
TEST(GuardianFrame, RefusesAnyChangedBit) {
  FrameWriter writer(key());
  const std::string bytes = writer.seal({FrameKind::verdict, 1, 2, 3, "text"});
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    FrameReader reader(key());
    reader.push(changed);
    bool taken = false;
    try {
      taken = reader.next().has_value();
    } catch (const Error&) {
    }
    EXPECT_FALSE(taken) << "bit " << bit;
  }
}

TEST(GuardianFrame, RefusesAnotherKey) {
  const Frame frame{FrameKind::verdict, 0, 0, 1, "end"};
  const std::string other_secret =
      FrameWriter(stream_key("another secret", "lead", std::string(16, 'a'), std::string(16, 'b')))
          .seal(frame);
  const std::string other_direction = FrameWriter(key("follower")).seal(frame);
  const std::string other_connection =
      FrameWriter(stream_key(kSecret, "lead", std::string(16, 'a'), std::string(16, 'c')))
          .seal(frame);
  for (const std::string& bytes : {other_secret, other_direction, other_connection}) {
    FrameReader reader(key());
    reader.push(bytes);
    EXPECT_THROW(reader.next(), Error);
  }
}

TEST(GuardianFrame, RefusesRepetitionAndGaps) {
  FrameWriter writer(key());
  const std::string first = writer.seal({FrameKind::heartbeat, 0, 0, 0, ""});
  const std::string second = writer.seal({FrameKind::heartbeat, 0, 0, 0, ""});
  FrameReader again(key());
  again.push(first + first);
  EXPECT_TRUE(again.next().has_value());
  EXPECT_THROW(again.next(), Error);
  FrameReader gap(key());
  gap.push(second);
  EXPECT_THROW(gap.next(), Error);
}

// The size is refused before anything of that size is waited for.
TEST(GuardianFrame, RefusesTextSizesBeyondTheMost) {
  std::string header = FrameWriter(key()).seal({FrameKind::heartbeat, 0, 0, 0, ""});
  header.resize(kFrameHeaderBytes);
  header[6] = '\xff';
  header[7] = '\xff';
  FrameReader reader(key());
  reader.push(header);
  EXPECT_THROW(reader.next(), Error);
}

TEST(GuardianFrame, RefusesNoise) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    FrameReader reader(key());
    reader.push(bytes);
    try {
      EXPECT_FALSE(reader.next().has_value());
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace weft::parallel
