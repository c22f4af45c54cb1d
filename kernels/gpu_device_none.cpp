// The owners of gpu_device.h in a build without a CUDA toolkit: none can be made.
#include "kernels/gpu_device.h"

#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

[[noreturn]] void refuse() { throw run_error("weft was built without CUDA"); }

}  // namespace

void select_gpu(int) { refuse(); }
GpuMemoryState gpu_memory() { refuse(); }
GpuStream::GpuStream() { refuse(); }
GpuStream::~GpuStream() = default;
void GpuStream::synchronise() const { refuse(); }
void synchronise(CudaStream) { refuse(); }
GpuEvent::GpuEvent(bool) { refuse(); }
GpuEvent::~GpuEvent() = default;
void GpuEvent::record(CudaStream) { refuse(); }
void GpuEvent::synchronise() const { refuse(); }
bool GpuEvent::happened() const { refuse(); }
void GpuEvent::hold(CudaStream) const { refuse(); }
double GpuEvent::ms_since(const GpuEvent&) const { refuse(); }
GpuBuffer::GpuBuffer(size_t) { refuse(); }
GpuBuffer::~GpuBuffer() = default;
PinnedBuffer::PinnedBuffer(size_t) { refuse(); }
PinnedBuffer::~PinnedBuffer() = default;
GpuGraph::GpuGraph(CudaStream, const std::function<void()>&) { refuse(); }
GpuGraph::~GpuGraph() = default;
void GpuGraph::launch(CudaStream) const { refuse(); }
void copy_bytes(void*, const void*, size_t, CudaStream) { refuse(); }
void copy_rows(void*, size_t, const void*, size_t, size_t, size_t, CudaStream) { refuse(); }
void clear_bytes(void*, size_t, CudaStream) { refuse(); }

}  // namespace weft::kernels
