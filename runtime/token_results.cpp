// The wire form of token results.
#include "runtime/token_results.h"

#include "runtime/wire.h"

namespace weft::runtime {

void TokenResults::reserve(size_t max_rows, ResultShape wanted) {
  shape = wanted;
  slot.reserve(max_rows);
  token.reserve(max_rows);
  logprob.reserve(max_rows);
  top_token.reserve(max_rows * shape.n_top);
  top_logprob.reserve(max_rows * shape.n_top);
  logits.reserve(max_rows * shape.n_logits);
}

void TokenResults::resize(size_t n) {
  slot.resize(n);
  token.resize(n);
  logprob.resize(n);
  top_token.resize(n * shape.n_top);
  top_logprob.resize(n * shape.n_top);
  logits.resize(n * shape.n_logits);
}

size_t TokenResults::max_bytes(size_t max_rows, ResultShape shape) {
  return 2 * sizeof(uint64_t) + max_rows * (3 + 2 * shape.n_top + shape.n_logits) * 4;
}

size_t TokenResults::encode(std::span<std::byte> to) const {
  WireWriter out(to);
  out.value(batch);
  out.value(static_cast<uint64_t>(size()));
  out.array(slot.data(), slot.size());
  out.array(token.data(), token.size());
  out.array(logprob.data(), logprob.size());
  out.array(top_token.data(), top_token.size());
  out.array(top_logprob.data(), top_logprob.size());
  out.array(logits.data(), logits.size());
  return out.bytes();
}

void TokenResults::decode(std::span<const std::byte> from) {
  WireReader in(from);
  batch = in.value<uint64_t>();
  const auto n = in.value<uint64_t>();
  in.array(slot, n);
  in.array(token, n);
  in.array(logprob, n);
  in.array(top_token, n * shape.n_top);
  in.array(top_logprob, n * shape.n_top);
  in.array(logits, n * shape.n_logits);
}

}  // namespace weft::runtime
