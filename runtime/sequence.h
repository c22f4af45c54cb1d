// A request and how far it has come, as rank 0 keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/sampling.h"

namespace weft::runtime {

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  kernels::SamplingParams sampling;
  size_t max_tokens = 128;
};

enum class FinishReason : uint8_t { none, stop, length, cancelled };

struct Sequence {
  Request request;
  std::vector<int32_t> tokens;  // prompt and output; its memory is taken when it is added
  std::vector<int32_t> blocks;  // of the KV cache, likewise
  size_t n_scheduled = 0;       // rows handed out in batches since it last started
  size_t n_in_flight = 0;       // batches that hold rows of it
  int32_t slot = -1;            // -1 while it waits
  bool last_in_slot = false;    // the slot's last token is tokens.back()
  bool started = false;         // its start has been sent in a batch since it took the slot
  FinishReason finish = FinishReason::none;

  size_t n_prompt() const { return request.prompt.size(); }
  size_t n_output() const { return tokens.size() - n_prompt(); }
  size_t n_remaining() const { return tokens.size() - n_scheduled; }
  bool decodes() const { return last_in_slot && n_remaining() <= 1; }
};

}  // namespace weft::runtime
