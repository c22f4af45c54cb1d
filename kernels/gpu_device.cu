// The owners of gpu_device.h on the CUDA runtime.
#include "kernels/gpu_device.h"

#include <cstring>

#include "kernels/cuda_check.h"

namespace weft::kernels {

void select_gpu(int device) {
  check(cudaSetDevice(device), "cudaSetDevice " + std::to_string(device));
  check(cudaFree(nullptr), "GPU " + std::to_string(device) + " cannot be used");
}

GpuMemoryState gpu_memory() {
  GpuMemoryState state;
  check(cudaMemGetInfo(&state.free_bytes, &state.total_bytes), "cudaMemGetInfo");
  return state;
}

GpuStream::GpuStream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

GpuStream::~GpuStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void GpuStream::synchronise() const { kernels::synchronise(stream_); }

void synchronise(CudaStream stream) { check(cudaStreamSynchronize(stream), "GPU work"); }

GpuEvent::GpuEvent(bool takes_time) {
  const unsigned flags = takes_time ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
}

GpuEvent::~GpuEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

void GpuEvent::record(CudaStream stream) {
  check(cudaEventRecord(event_, stream), "cudaEventRecord");
}

void GpuEvent::synchronise() const { check(cudaEventSynchronize(event_), "GPU work"); }

bool GpuEvent::happened() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) return false;
  check(status, "GPU work");
  return true;
}

void GpuEvent::hold(CudaStream stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

double GpuEvent::ms_since(const GpuEvent& start) const {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, start.event_, event_), "cudaEventElapsedTime");
  return ms;
}

GpuBuffer::GpuBuffer(size_t bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "GPU memory of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
}

GpuBuffer::~GpuBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

PinnedBuffer::PinnedBuffer(size_t bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault),
        "pinned memory of " + std::to_string(bytes) + " bytes");
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  std::memset(data_, 0, bytes_);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

namespace {

// A graph under construction.
class Recording {
 public:
  explicit Recording(CudaStream stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  ~Recording() {
    if (open_) cudaStreamEndCapture(stream_, &graph_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    cudaGetLastError();  // of a recording that failed: said already
  }
  cudaGraph_t end() {
    open_ = false;
    check(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
    return graph_;
  }

 private:
  CudaStream stream_;
  cudaGraph_t graph_ = nullptr;
  bool open_ = true;
};

}  // namespace

GpuGraph::GpuGraph(CudaStream stream, const std::function<void()>& record) {
  Recording recording(stream);
  record();
  cudaGraph_t graph = recording.end();
  check(cudaGraphGetNodes(graph, nullptr, &n_nodes_), "cudaGraphGetNodes");
  check(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphUpload(graph_, stream), "cudaGraphUpload");
}

GpuGraph::~GpuGraph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

void GpuGraph::launch(CudaStream stream) const {
  check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch");
}

void copy_bytes(void* to, const void* from, size_t bytes, CudaStream stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
               size_t rows, CudaStream stream) {
  if (row_bytes == 0 || rows == 0) return;
  check(
      cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, cudaMemcpyDefault, stream),
      "cudaMemcpy2DAsync");
}

void clear_bytes(void* to, size_t bytes, CudaStream stream) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(to, 0, bytes, stream), "cudaMemsetAsync");
}

}  // namespace weft::kernels
