// Owner of an hwloc topology.
#pragma once

#include <hwloc.h>

namespace weft::parallel {

class HwlocHandle {
 public:
  // Not loaded yet: filters come first. Throws Error.
  HwlocHandle();
  ~HwlocHandle() {
    if (topology_ != nullptr) hwloc_topology_destroy(topology_);
  }
  HwlocHandle(HwlocHandle&& other) noexcept : topology_(other.topology_) {
    other.topology_ = nullptr;
  }
  HwlocHandle(const HwlocHandle&) = delete;
  HwlocHandle& operator=(const HwlocHandle&) = delete;

  void load();  // throws Error
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
};

// Owner of an hwloc bitmap.
class HwlocBitmap {
 public:
  HwlocBitmap() : bitmap_(hwloc_bitmap_alloc()) {}
  ~HwlocBitmap() { hwloc_bitmap_free(bitmap_); }
  HwlocBitmap(const HwlocBitmap&) = delete;
  HwlocBitmap& operator=(const HwlocBitmap&) = delete;
  hwloc_bitmap_t get() const { return bitmap_; }

 private:
  hwloc_bitmap_t bitmap_;
};

}  // namespace weft::parallel
