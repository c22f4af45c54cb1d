// Sealing and opening of frames.
#include "parallel/guardian_frame.h"

#include <cstring>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr uint32_t kMagic = 0x47544657;  // "WFTG"

template <class T>
void put(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    to += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
}

template <class T>
T get(std::string_view from, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= uint64_t{static_cast<unsigned char>(from[at + i])} << (8 * i);
  return static_cast<T>(value);
}

std::string_view view(const Tag& tag) {
  return {reinterpret_cast<const char*>(tag.data()), tag.size()};
}

bool known(uint8_t kind) {
  return kind >= static_cast<uint8_t>(FrameKind::hello) &&
         kind <= static_cast<uint8_t>(FrameKind::renamed);
}

}  // namespace

Tag stream_key(std::string_view secret, std::string_view sender, std::string_view lead_nonce,
               std::string_view follower_nonce) {
  return hmac_sha256(secret,
                     fmt::format("weft guardian 1 {} {}{}", sender, lead_nonce, follower_nonce));
}

std::string FrameWriter::seal(const Frame& frame) {
  const std::string_view text = std::string_view(frame.text).substr(0, kMostFrameText);
  std::string bytes;
  put(bytes, kMagic);
  put(bytes, static_cast<uint8_t>(frame.kind));
  put(bytes, frame.flags);
  put(bytes, static_cast<uint16_t>(text.size()));
  put(bytes, frame.rank);
  put(bytes, frame.status);
  put(bytes, number_++);
  bytes += text;
  bytes += view(hmac_sha256(view(key_), bytes));
  return bytes;
}

std::optional<Frame> FrameReader::next() {
  if (held_.size() < kFrameHeaderBytes) return std::nullopt;
  const auto text_bytes = size_t{get<uint16_t>(held_, 6)};
  const auto kind = get<uint8_t>(held_, 4);
  if (get<uint32_t>(held_, 0) != kMagic || !known(kind) || text_bytes > kMostFrameText)
    throw run_error("not a guardian's frame");
  const size_t signed_bytes = kFrameHeaderBytes + text_bytes;
  Tag tag{};
  if (held_.size() < signed_bytes + tag.size()) return std::nullopt;
  std::memcpy(tag.data(), held_.data() + signed_bytes, tag.size());
  const std::string_view bytes = std::string_view(held_).substr(0, signed_bytes);
  if (!equal_tags(tag, hmac_sha256(view(key_), bytes)))
    throw run_error("a frame that was not made with this job's secret");
  if (get<uint64_t>(held_, 16) != number_) throw run_error("a frame out of its order");
  ++number_;
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  frame.flags = get<uint8_t>(held_, 5);
  frame.rank = get<uint32_t>(held_, 8);
  frame.status = get<int32_t>(held_, 12);
  frame.text = held_.substr(kFrameHeaderBytes, text_bytes);
  held_.erase(0, signed_bytes + tag.size());
  return frame;
}

}  // namespace weft::parallel
