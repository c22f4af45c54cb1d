// What a rank owns on its GPU: stream, events, memory, graphs. Plain C++, so that every folder may
// hold them; a build without a toolkit has the same classes, which throw (gpu_device_none.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace weft::kernels {

using CudaStream = CUstream_st*;

// Makes a GPU (CUDA's number) current for the calling thread, whose streams and memory are then of
// that GPU. Ranks call it once, before all else here.
void select_gpu(int device);

struct GpuMemoryState {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
};
GpuMemoryState gpu_memory();  // of the current GPU

// Everything below throws Error with CUDA's text; all is of the GPU that was current when it was
// made, move-only.

class GpuStream {
 public:
  GpuStream();
  ~GpuStream();
  GpuStream(GpuStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  GpuStream& operator=(GpuStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  CudaStream get() const { return stream_; }
  operator CudaStream() const { return stream_; }
  void synchronise() const;

 private:
  CudaStream stream_ = nullptr;
};

void synchronise(CudaStream stream);

class GpuEvent {
 public:
  // An event that takes the time costs a little more.
  explicit GpuEvent(bool takes_time = false);
  ~GpuEvent();
  GpuEvent(GpuEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  GpuEvent& operator=(GpuEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  void record(CudaStream stream);
  // Until what was recorded has happened; returns at once where nothing was.
  void synchronise() const;
  bool happened() const;
  // Later work of the stream waits.
  void hold(CudaStream stream) const;
  // From `start` to this, both recorded and over.
  double ms_since(const GpuEvent& start) const;

 private:
  CUevent_st* event_ = nullptr;
};

// Memory of the GPU, not cleared; from one cudaMalloc, so at a multiple of 256 bytes.
class GpuBuffer {
 public:
  GpuBuffer() = default;
  explicit GpuBuffer(size_t bytes);
  ~GpuBuffer();
  GpuBuffer(GpuBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  GpuBuffer& operator=(GpuBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Host memory that the GPU reads and writes directly, by its own address, and copies at full speed;
// cleared.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// What a function enqueues on a stream, recorded once and replayed as a whole.
class GpuGraph {
 public:
  GpuGraph() = default;
  // Runs `record` while the stream records instead of executing. Throws what `record` throws, or
  // what CUDA says against recording it; the stream executes again then.
  GpuGraph(CudaStream stream, const std::function<void()>& record);
  ~GpuGraph();
  GpuGraph(GpuGraph&& other) noexcept
      : graph_(std::exchange(other.graph_, nullptr)), n_nodes_(other.n_nodes_) {}
  GpuGraph& operator=(GpuGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    std::swap(n_nodes_, other.n_nodes_);
    return *this;
  }
  explicit operator bool() const { return graph_ != nullptr; }
  void launch(CudaStream stream) const;
  size_t n_nodes() const { return n_nodes_; }

 private:
  CUgraphExec_st* graph_ = nullptr;
  size_t n_nodes_ = 0;
};

// Copies between host and GPU memory, either way, or within the GPU; in the stream's order. Host
// memory that is not pinned is copied before the call returns.
void copy_bytes(void* to, const void* from, size_t bytes, CudaStream stream);
// `rows` rows of `row_bytes`, which lie to_pitch and from_pitch bytes apart.
void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
               size_t rows, CudaStream stream);
void clear_bytes(void* to, size_t bytes, CudaStream stream);

}  // namespace weft::kernels
