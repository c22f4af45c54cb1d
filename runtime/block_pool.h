// Free blocks of the KV cache. Ids are global over stages; rank 0 alone hands them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::runtime {

class BlockPool {
 public:
  explicit BlockPool(size_t n_blocks);
  size_t n_blocks() const { return n_blocks_; }
  size_t n_free() const { return free_.size(); }

  // A block that is free; n_free() must not be 0. Lowest ids first from a fresh pool.
  int32_t take();
  void give_back(std::span<const int32_t> blocks);

 private:
  size_t n_blocks_;
  std::vector<int32_t> free_;  // a stack
};

}  // namespace weft::runtime
