// Where operations run. A Stream orders them; on the CPU it owns nothing but a pool of threads that
// split an operation's outputs, and every operation has finished when its function returns. A rank
// on a GPU has a CUDA stream beside it, in whose order operations on the GPU's memory run.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

struct CUstream_st;

namespace weft::kernels {

// Threads of one rank, the caller counted. Workers wait a few microseconds for more work, then
// sleep: an idle pool uses no core.
class ThreadPool {
 public:
  explicit ThreadPool(size_t n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t n_threads() const;

  // Calls f(begin, end) for ranges that cover [0, n) once, each a multiple of `grain` long except
  // the last; returns when all are done. One range, on the caller, when n <= grain. Allocates
  // nothing. An exception in f is rethrown here. Not re-entrant.
  template <class F>
  void split(size_t n, size_t grain, F&& f) {
    using Function = std::remove_reference_t<F>;
    split_ranges(
        n, grain,
        [](void* context, size_t begin, size_t end) {
          (*static_cast<Function*>(context))(begin, end);
        },
        const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

 private:
  using RangeCall = void (*)(void* context, size_t begin, size_t end);
  void split_ranges(size_t n, size_t grain, RangeCall call, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

class Stream {
 public:
  explicit Stream(ThreadPool& pool, CUstream_st* gpu = nullptr) : pool_(&pool), gpu_(gpu) {}
  ThreadPool& pool() const { return *pool_; }
  CUstream_st* gpu() const { return gpu_; }  // null on the CPU

 private:
  ThreadPool* pool_;
  CUstream_st* gpu_;
};

}  // namespace weft::kernels
