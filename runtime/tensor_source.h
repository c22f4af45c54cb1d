// Where weights come from: a checkpoint on disk, or a generator of synthetic values.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "planner/model_spec.h"
#include "runtime/base/dtype.h"

namespace weft::runtime {

struct TensorInfo {
  DType dtype = DType::bf16;
  std::vector<size_t> shape;  // rows first
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Null where the checkpoint has no such tensor.
  virtual const TensorInfo* find(const std::string& name) const = 0;

  // Tensors read in ascending order of this are read as they lie on disk: file, then offset.
  using Place = std::pair<size_t, uint64_t>;
  virtual Place place(const std::string& name) const = 0;

  // Rows [begin, end) of a tensor (elements, for one dimension), dense, in its own dtype, in large
  // sequential reads split over the pool. Throws Error with the file, tensor and offsets.
  virtual void read_rows(const std::string& name, size_t begin, size_t end, void* to,
                         kernels::ThreadPool& pool) = 0;

  // Where a row of a tensor begins in its file, for sources whose files can be mapped.
  virtual std::optional<uint64_t> file_offset(const std::string& /*name*/, size_t /*row*/) const {
    return std::nullopt;
  }

  // As read_rows, but whole pages of the file take the place of those at `to`: nothing is copied,
  // and the processes of a host share them. Only where rows lie in their pages as `to` does in its
  // own (file_offset, to a multiple of the page size). `to` is anonymous memory that is not written
  // to afterwards.
  virtual void map_rows(const std::string& name, size_t begin, size_t end, void* to,
                        kernels::ThreadPool& pool) {
    read_rows(name, begin, end, to, pool);
  }

  // SHA-256, in hexadecimal, over names, types, shapes and a few values of every tensor: ranks that
  // were given other weights of the same shapes, a stale copy or another fine-tune, have another.
  virtual std::string fingerprint() const = 0;

  // The seed of a source that makes its values by runtime/synthetic.h's formula, wherever they are
  // wanted.
  virtual std::optional<uint64_t> synthetic_seed() const { return std::nullopt; }

  // Bytes taken from disk so far (generated, for a synthetic source).
  virtual size_t bytes_read() const = 0;
};

// A Hugging Face folder: model.safetensors, or model.safetensors.index.json and its shards. Headers
// are read and checked here, and every tensor the model needs is looked up with its shape: all that
// is wrong comes in one Error.
std::unique_ptr<TensorSource> open_checkpoint(const std::string& folder,
                                              const planner::ModelSpec& spec);

// Weights made from a seed: each element depends on (seed, tensor name, element index in the
// checkpoint's layout) alone, so every layout and backend sees the same values. Scaled so that
// activations stay in range (matrices by 1/sqrt(columns), norms around 1).
std::unique_ptr<TensorSource> make_synthetic(const planner::ModelSpec& spec, uint64_t seed);

}  // namespace weft::runtime
