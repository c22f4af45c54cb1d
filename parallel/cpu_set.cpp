// Sets of CPUs as words of 64 bits without zeros at the end, so that equal sets have equal words.
#include "parallel/cpu_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

constexpr size_t kWordBits = 64;
constexpr size_t kGroupBits = 32;

uint32_t parse_group(std::string_view group, std::string_view text, std::string_view what) {
  std::string_view digits = group;
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  uint32_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
  if (error != std::errc() || stop != end)
    throw input_error("{}: \"{}\" is no mask of CPUs: \"{}\" is not up to 8 hexadecimal digits",
                      what, text.substr(0, 80), group.substr(0, 20));
  return value;
}

}  // namespace

CpuSet CpuSet::range(size_t begin, size_t end) {
  CpuSet set;
  for (size_t cpu = begin; cpu < end; ++cpu) set.add(cpu);
  return set;
}

CpuSet CpuSet::parse_mask(std::string_view text, std::string_view what) {
  constexpr size_t kMostText = kMostCpus / kGroupBits * 11;  // "0x00000000," a group
  if (text.size() > kMostText)
    throw input_error("{}: a mask of {} characters; at most {} CPUs are read", what, text.size(),
                      kMostCpus);
  const std::vector<std::string> groups = split(text, ',');
  CpuSet set;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].empty() && groups.size() > 1) continue;  // hwloc leaves zeros out
    const uint32_t bits = parse_group(groups[i], text, what);
    const size_t first = (groups.size() - 1 - i) * kGroupBits;
    if (bits != 0 && first + kGroupBits > kMostCpus)
      throw input_error("{}: CPU {} is named; at most {} CPUs are read", what, first, kMostCpus);
    for (size_t bit = 0; bit < kGroupBits; ++bit)
      if (bits >> bit & 1) set.add(first + bit);
  }
  return set;
}

void CpuSet::add(size_t cpu) {
  WEFT_EXPECT(cpu < kMostCpus);
  if (words_.size() <= cpu / kWordBits) words_.resize(cpu / kWordBits + 1);
  words_[cpu / kWordBits] |= uint64_t{1} << cpu % kWordBits;
}

bool CpuSet::has(size_t cpu) const {
  return cpu / kWordBits < words_.size() && (words_[cpu / kWordBits] >> cpu % kWordBits & 1);
}

size_t CpuSet::count() const {
  size_t n = 0;
  for (const uint64_t word : words_) n += static_cast<size_t>(std::popcount(word));
  return n;
}

std::vector<size_t> CpuSet::cpus() const {
  std::vector<size_t> all;
  for (size_t w = 0; w < words_.size(); ++w)
    for (uint64_t rest = words_[w]; rest != 0; rest &= rest - 1)
      all.push_back(w * kWordBits + static_cast<size_t>(std::countr_zero(rest)));
  return all;
}

std::vector<std::pair<size_t, size_t>> CpuSet::runs() const {
  std::vector<std::pair<size_t, size_t>> found;
  for (const size_t cpu : cpus()) {
    if (found.empty() || found.back().second != cpu) found.emplace_back(cpu, cpu);
    found.back().second = cpu + 1;
  }
  return found;
}

bool CpuSet::intersects(const CpuSet& other) const {
  for (size_t w = 0; w < std::min(words_.size(), other.words_.size()); ++w)
    if (words_[w] & other.words_[w]) return true;
  return false;
}

bool CpuSet::contains(const CpuSet& other) const { return (other - *this).empty(); }

std::string CpuSet::text() const {
  std::string list;
  for (const auto& [begin, end] : runs()) {
    if (!list.empty()) list += ',';
    list += end - begin == 1 ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end - 1);
  }
  return list.empty() ? "none" : list;
}

CpuSet operator|(const CpuSet& a, const CpuSet& b) {
  CpuSet both = a.words_.size() < b.words_.size() ? b : a;
  const CpuSet& less = a.words_.size() < b.words_.size() ? a : b;
  for (size_t w = 0; w < less.words_.size(); ++w) both.words_[w] |= less.words_[w];
  return both;
}

CpuSet operator&(const CpuSet& a, const CpuSet& b) {
  CpuSet both;
  both.words_.resize(std::min(a.words_.size(), b.words_.size()));
  for (size_t w = 0; w < both.words_.size(); ++w) both.words_[w] = a.words_[w] & b.words_[w];
  both.trim();
  return both;
}

CpuSet operator-(const CpuSet& a, const CpuSet& b) {
  CpuSet rest = a;
  for (size_t w = 0; w < std::min(a.words_.size(), b.words_.size()); ++w)
    rest.words_[w] &= ~b.words_[w];
  rest.trim();
  return rest;
}

void CpuSet::trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

}  // namespace weft::parallel
