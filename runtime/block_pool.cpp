// Free blocks of the KV cache.
#include "runtime/block_pool.h"

#include "runtime/base/error.h"

namespace weft::runtime {

BlockPool::BlockPool(size_t n_blocks) : n_blocks_(n_blocks) {
  free_.reserve(n_blocks);
  for (size_t i = n_blocks; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
}

int32_t BlockPool::take() {
  WEFT_EXPECT(!free_.empty());
  const int32_t block = free_.back();
  free_.pop_back();
  return block;
}

void BlockPool::give_back(std::span<const int32_t> blocks) {
  WEFT_EXPECT(free_.size() + blocks.size() <= n_blocks_);
  free_.insert(free_.end(), blocks.rbegin(), blocks.rend());
}

}  // namespace weft::runtime
