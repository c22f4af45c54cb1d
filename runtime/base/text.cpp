// Small helpers for texts that people read.
#include "runtime/base/text.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/error.h"

namespace weft {
namespace {

// Optimal string alignment distance: edits and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > 64) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;
  for (std::string_view candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates) {
  const std::string_view best = nearest(name, candidates);
  return best.empty() ? std::string() : fmt::format(" (did you mean \"{}\"?)", best);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string_view::npos; begin = end + 1)
    parts.emplace_back(text.substr(begin, end - begin));
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::string human_bytes(size_t bytes) {
  const double x = static_cast<double>(bytes);
  if (x >= 1024.0 * 1024 * 1024) return fmt::format("{:.2f} GiB", x / (1024.0 * 1024 * 1024));
  if (x >= 1024.0 * 1024) return fmt::format("{:.1f} MiB", x / (1024.0 * 1024));
  if (x >= 1024.0) return fmt::format("{:.1f} KiB", x / 1024.0);
  return fmt::format("{} B", bytes);
}

std::string human_count(size_t n) {
  const double x = static_cast<double>(n);
  if (x >= 1e9) return fmt::format("{:.2f} B", x / 1e9);
  if (x >= 1e6) return fmt::format("{:.2f} M", x / 1e6);
  return fmt::format("{}", n);
}

size_t parse_count(std::string_view text, std::string_view what, size_t most) {
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value > most)
    throw input_error("{}: \"{}\" is not a whole number from 0 to {}", what, text, most);
  return value;
}

bool is_utf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (size_t i = 0; i < bytes.size();) {
    const unsigned lead = byte(i);
    const size_t n = lead < 0x80   ? 1
                     : lead < 0xc2 ? 0
                     : lead < 0xe0 ? 2
                     : lead < 0xf0 ? 3
                     : lead < 0xf5 ? 4
                                   : 0;
    if (n == 0 || i + n > bytes.size()) return false;
    for (size_t k = 1; k < n; ++k)
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    if (lead == 0xe0 && byte(i + 1) < 0xa0) return false;
    if (lead == 0xed && byte(i + 1) > 0x9f) return false;
    if (lead == 0xf0 && byte(i + 1) < 0x90) return false;
    if (lead == 0xf4 && byte(i + 1) > 0x8f) return false;
    i += n;
  }
  return true;
}

}  // namespace weft
