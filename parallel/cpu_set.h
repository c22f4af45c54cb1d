// A set of CPUs: hardware threads by the operating system's numbers. Reads the masks of hwloc, NCCL
// and the kernel; prints lists as taskset takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::parallel {

class CpuSet {
 public:
  static constexpr size_t kMostCpus = 8192;  // as many as Linux can have

  static CpuSet range(size_t begin, size_t end);  // [begin, end)
  // "0x000000ff,,0x0000ffff" (hwloc) and "00000000,0000ffff" (NCCL, the kernel): groups of 32 bits,
  // the highest first. Throws Error naming `what`.
  static CpuSet parse_mask(std::string_view text, std::string_view what);

  void add(size_t cpu);  // below kMostCpus
  bool has(size_t cpu) const;
  bool empty() const { return words_.empty(); }
  size_t count() const;
  std::vector<size_t> cpus() const;                     // ascending
  std::vector<std::pair<size_t, size_t>> runs() const;  // [begin, end) of neighbours
  bool intersects(const CpuSet& other) const;
  bool contains(const CpuSet& other) const;
  std::string text() const;  // "0-31,64-95"; "none" where it is empty

  friend CpuSet operator|(const CpuSet& a, const CpuSet& b);
  friend CpuSet operator&(const CpuSet& a, const CpuSet& b);
  friend CpuSet operator-(const CpuSet& a, const CpuSet& b);
  bool operator==(const CpuSet&) const = default;
  auto operator<=>(const CpuSet&) const = default;

 private:
  void trim();

  std::vector<uint64_t> words_;  // the last is not zero
};

}  // namespace weft::parallel
