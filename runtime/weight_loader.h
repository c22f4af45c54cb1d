// Moves tensors from a source into a rank's arena, with the ranks of the host sharing the reading
// of what they split by columns.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/weight_layout.h"

namespace weft::runtime {

// Every rank of `group` makes one and calls the same operations in the same order. A failure that
// only one rank sees (a bad disk) is kept until agree(), so that nobody is left in a collective.
class WeightLoader {
 public:
  WeightLoader(TensorSource& source, const planner::ModelSpec& spec, const planner::Plan& plan,
               size_t tp, parallel::Communicator& group, const std::vector<size_t>& tp_ranks,
               kernels::Stream& stream, bool map_files);

  // Runs f unless something failed before; keeps what it throws.
  template <class F>
  void attempt(F&& f) {
    if (failure_) return;
    try {
      std::forward<F>(f)();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  // A collective: throws on every rank of the group when one has failed.
  void agree();

  // Bytes this rank will take from the source for a tensor.
  size_t read_bytes(const TensorLoad& load) const;
  // Bytes of a tensor, as stored, that end in this rank's arena.
  size_t useful_bytes(const TensorLoad& load) const;

  // True where this rank alone reads the rows and keeps all of their columns, without padding.
  bool is_whole(const TensorLoad& load) const;

  // True where pages of the tensor's file take the place of the arena's.
  bool is_mapped(const TensorLoad& load) const;
  // What lay_out asks for.
  std::optional<size_t> phase(const std::string& name, size_t row) const;

  // Where a tensor goes; without gaps, as its row_step were 1.
  std::span<std::byte> destination(const TensorLoad& load) const;

  // Into host memory at load.to, without gaps. `done` is called with bytes as they are read. A
  // collective for tensors split by columns.
  using Done = std::function<void(size_t bytes)>;
  void load(const TensorLoad& load, const Done& done);

 private:
  struct Tensor {
    const TensorLoad& load;
    DType dtype;
    size_t columns;    // stored
    size_t row_bytes;  // stored
  };
  Tensor describe(const TensorLoad& load) const;
  planner::Range share(const TensorLoad& load, size_t member) const;

  void load_rows(const Tensor& tensor, const Done& done);
  void load_columns(const Tensor& tensor, const Done& done);
  void pack(const Tensor& tensor, const ColumnPart& part, size_t n_rows, std::byte* to);
  std::byte* room(Pages& pages, size_t bytes);

  TensorSource& source_;
  const planner::ModelSpec& spec_;
  DType dtype_;  // of the arena
  size_t tp_;
  parallel::Communicator& group_;
  const std::vector<size_t>& tp_ranks_;
  kernels::Stream& stream_;
  bool map_files_;
  Pages rows_;    // staging: stored rows
  Pages packed_;  // staging: columns on their way to peers
  std::exception_ptr failure_;
};

}  // namespace weft::runtime
