// The bytes that guardians exchange over TCP. Each frame ends with an HMAC over all of it and over
// its number in the stream, by a key that holds for one direction of one connection: what was not
// made by the other guardian, or comes a second time, is refused.
//
//   magic u32 | kind u8 | flags u8 | text_bytes u16 | rank u32 | status i32 | number u64 | text |
//   tag
//
// Integers are little-endian. text_bytes is checked before anything is kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/hmac.h"

namespace weft::parallel {

enum class FrameKind : uint8_t {
  hello = 1,  // a guardian to rank 0's: its rank, its name
  welcome,    // the answer: rank 0's name
  heartbeat,  // flags: kRankStopped, kAllStopped; status: drain requests so far; text: a byte, the
              // rank's activity, or none
  failure,    // to rank 0's guardian: the first cause here; flags: its CauseKind
  verdict,    // from rank 0's guardian: the cause has been said, end with this status
  leaving,    // this guardian's rank has ended as it should; the connection may close
  renamed,    // the sender's rank is called by this text from now on
};

constexpr uint8_t kRankStopped = 1;  // the sender's rank is stopped (SIGSTOP)
constexpr uint8_t kAllStopped = 2;   // every rank is: the job is suspended, not stuck

struct Frame {
  FrameKind kind = FrameKind::heartbeat;
  uint8_t flags = 0;
  uint32_t rank = 0;
  int32_t status = 0;
  std::string text;
};

constexpr size_t kFrameHeaderBytes = 24;
constexpr size_t kMostFrameText = 4096;
constexpr size_t kNonceBytes = 16;

// The key of one direction: `sender` is "lead" or "follower", the nonces are one from each side.
Tag stream_key(std::string_view secret, std::string_view sender, std::string_view lead_nonce,
               std::string_view follower_nonce);

class FrameWriter {
 public:
  explicit FrameWriter(const Tag& key) : key_(key) {}
  // The frame's bytes; longer text is cut.
  std::string seal(const Frame& frame);

 private:
  Tag key_;
  uint64_t number_ = 0;
};

class FrameReader {
 public:
  explicit FrameReader(const Tag& key) : key_(key) {}
  void push(std::string_view bytes) { held_ += bytes; }
  // The next whole frame; none while its end has not come. Throws Error where the bytes are not
  // the other guardian's next frame: the connection is then of no use.
  std::optional<Frame> next();

 private:
  Tag key_;
  uint64_t number_ = 0;
  std::string held_;
};

}  // namespace weft::parallel
