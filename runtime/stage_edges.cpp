// Slices of the residual stream over the wire, and the gather behind it.
#include "runtime/stage_edges.h"

#include "kernels/copy.h"

namespace weft::runtime {

using parallel::EdgeSlice;
using parallel::Transfer;

StageEdges::StageEdges(const parallel::DeviceMesh& mesh, int world_rank,
                       parallel::Communicator& edges, parallel::Communicator& group,
                       kernels::Stream& stream, std::byte* memory, size_t max_elements, DType dtype)
    : mesh_(mesh),
      stage_(mesh.stage_of(world_rank)),
      tp_rank_(mesh.tp_rank_of(world_rank)),
      world_rank_(world_rank),
      edges_(edges),
      group_(group),
      stream_(stream),
      element_bytes_(dtype_bytes(dtype)) {
  if (stage_ + 1 == mesh_.n_stages()) return;
  const size_t bytes = max_elements * element_bytes_;
  for (size_t i = 0; i < outgoing_.size(); ++i) outgoing_[i].memory = memory + i * bytes;
  transfers_.reserve(static_cast<size_t>(mesh_.stages[stage_ + 1].tp));
}

size_t StageEdges::memory_bytes(const DecoderShape& shape) {
  constexpr size_t n_outgoing = std::tuple_size_v<decltype(outgoing_)>;
  return n_outgoing * shape.limits.max_batch_tokens * shape.spec.hidden *
         dtype_bytes(shape.formats.activations);
}

void StageEdges::receive(kernels::Out buffer, size_t n) {
  auto* data = static_cast<std::byte*>(buffer.data);
  const EdgeSlice mine = parallel::edge_slice(mesh_, stage_ - 1, stage_, n, tp_rank_);
  const Transfer transfer{Transfer::Kind::recv, mine.from, data + mine.begin * element_bytes_,
                          (mine.end - mine.begin) * element_bytes_};
  edges_.exchange({&transfer, 1}, stream_);
  if (group_.size() == 1) return;
  const auto n_ranks = static_cast<size_t>(group_.size());
  const size_t slice_bytes = (n + n_ranks - 1) / n_ranks * element_bytes_;
  group_.all_gather(data + static_cast<size_t>(tp_rank_) * slice_bytes, data, slice_bytes, stream_);
}

void StageEdges::send(kernels::In buffer, size_t n) {
  Outgoing& out = outgoing_[turn_++ % outgoing_.size()];
  if (out.pending) edges_.wait(out.ticket, stream_);
  transfers_.clear();
  const auto* data = static_cast<const std::byte*>(buffer.data);
  for (int receiver = 0; receiver < mesh_.stages[stage_ + 1].tp; ++receiver) {
    const EdgeSlice slice = parallel::edge_slice(mesh_, stage_, stage_ + 1, n, receiver);
    if (slice.from != world_rank_) continue;
    const size_t begin = slice.begin * element_bytes_;
    const size_t bytes = (slice.end - slice.begin) * element_bytes_;
    kernels::copy(out.memory + begin, data + begin, bytes, stream_);
    transfers_.push_back({Transfer::Kind::send, slice.to, out.memory + begin, bytes});
  }
  out.ticket = edges_.start(transfers_, stream_);
  out.pending = true;
}

void StageEdges::finish() {
  for (Outgoing& out : outgoing_) {
    if (out.pending) edges_.wait(out.ticket, stream_);
    out.pending = false;
  }
}

}  // namespace weft::runtime
