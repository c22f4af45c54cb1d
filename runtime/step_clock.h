// Where a step's time goes on one rank: a mark where each part begins. A rank without a clock pays
// for a test of a pointer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/gpu_device.h"

namespace weft::runtime {

enum class StepPart : uint8_t {
  embedding,
  norm,  // of a layer, where it is an operation of its own
  qkv,   // product, norms of heads, RoPE, append to the cache
  attention,
  o,           // product, and its sum with the residual stream
  ffn,         // products, SwiGLU, sum with the residual stream
  all_reduce,  // over the stage's ranks
  send,        // to the next stage, and logits to the rank that samples
  receive,     // waits included
  head,        // final norm and product
  sampling,
  host,  // deltas, tokens, what a GPU waits for
};
inline constexpr std::array<std::string_view, 12> kStepPartNames = {
    "embedding",  "norm", "qkv",     "attention", "o",        "ffn",
    "all-reduce", "send", "receive", "head",      "sampling", "host"};

// A stretch of one part.
struct PartSpan {
  double begin_us = 0;  // since the clock was made
  double us = 0;
  uint64_t batch = 0;  // its id
  int32_t layer = -1;  // of the model; −1: of none
  StepPart part = StepPart::host;
  bool decodes = false;  // the batch is of one token a sequence
};

class StepClock {
 public:
  // Null: by the host's clock, for ranks on CPUs. Else by events on the stream, for work that is
  // enqueued kernel by kernel: each kernel then begins when the one before has ended.
  explicit StepClock(kernels::CudaStream gpu = nullptr);

  // Here a part begins, and the one before it ends.
  void mark(StepPart part, int32_t layer = -1);
  // The batch has ended: waits for the GPU, and keeps the spans.
  void end(uint64_t batch, bool decodes);
  const std::vector<PartSpan>& spans() const { return spans_; }

 private:
  struct Mark {
    StepPart part;
    int32_t layer;
    double us;  // host's
  };
  double now_us() const;
  void stamp();
  double since_first_us(size_t mark) const;

  kernels::CudaStream gpu_;
  int64_t origin_ns_;
  std::vector<Mark> marks_;                // of this step
  std::vector<kernels::GpuEvent> events_;  // on a GPU: one a mark and one for the end, used again
  std::vector<PartSpan> spans_;
};

inline void mark(StepClock* clock, StepPart part, int32_t layer = -1) {
  if (clock != nullptr) clock->mark(part, layer);
}

}  // namespace weft::runtime
