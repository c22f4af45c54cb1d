// The residual stream between neighbouring stages of any width: each receiver gets one slice of the
// flat [tokens * hidden] buffer over the wire, then its group gathers the slices.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "kernels/tensor.h"
#include "parallel/communicator.h"
#include "parallel/device_mesh.h"
#include "runtime/decoder.h"

namespace weft::runtime {

class StageEdges {
 public:
  // Of what waits to be sent, for the ranks of all stages but the last.
  static size_t memory_bytes(const DecoderShape& shape);

  // `edges` spans all world ranks in order; `group` is this rank's stage. max_elements =
  // max_batch_tokens * hidden, of `dtype`. `memory` is where the activations are, on the CPU or the
  // GPU of `stream`, and outlives this.
  StageEdges(const parallel::DeviceMesh& mesh, int world_rank, parallel::Communicator& edges,
             parallel::Communicator& group, kernels::Stream& stream, std::byte* memory,
             size_t max_elements, DType dtype);

  // Fills buffer [n], which must have room for tp elements more. A call each batch, in order.
  void receive(kernels::Out buffer, size_t n);
  // Takes a copy and returns; two batches may be on their way before it waits for the older one.
  void send(kernels::In buffer, size_t n);
  // Waits until all that was sent has left.
  void finish();

 private:
  struct Outgoing {
    std::byte* memory = nullptr;
    bool pending = false;
    parallel::Ticket ticket;
  };

  parallel::DeviceMesh mesh_;
  size_t stage_;
  int tp_rank_;
  int world_rank_;
  parallel::Communicator& edges_;
  parallel::Communicator& group_;
  kernels::Stream& stream_;
  size_t element_bytes_;
  std::array<Outgoing, 2> outgoing_;
  size_t turn_ = 0;
  std::vector<parallel::Transfer> transfers_;
};

}  // namespace weft::runtime
