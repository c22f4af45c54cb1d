// Arithmetic of tensor-parallel shards.
#include "planner/shard_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"

namespace weft::planner {
namespace {

constexpr size_t kMostChunks = 8;
constexpr size_t kPadding = 16;  // a chunk's dot product runs in 16 lanes

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

Range part(size_t n, size_t tp, size_t rank) { return {n / tp * rank, n / tp * (rank + 1)}; }

bool splits_heads(const ModelSpec& spec, size_t tp) { return spec.n_heads % tp == 0; }

bool splits_kv_heads(const ModelSpec& spec, size_t tp) {
  return spec.n_kv_heads % tp == 0 || tp % spec.n_kv_heads == 0;
}

}  // namespace

size_t n_chunks(const ModelSpec& spec) {
  size_t chunks = kMostChunks;
  while (spec.n_heads % chunks != 0) chunks /= 2;
  return chunks;
}

std::vector<size_t> legal_tp(const ModelSpec& spec) {
  std::vector<size_t> legal;
  for (size_t tp = 1; tp <= spec.n_heads; ++tp)
    if (splits_heads(spec, tp) && splits_kv_heads(spec, tp)) legal.push_back(tp);
  return legal;
}

std::string tp_problem(const ModelSpec& spec, size_t tp, bool invariant) {
  const size_t chunks = n_chunks(spec);
  const auto legal = [&] {
    const std::vector<size_t> all = legal_tp(spec);
    std::vector<size_t> fast_only = all;
    std::erase_if(fast_only, [&](size_t other) { return chunks % other == 0; });
    const std::string note =
        !invariant || fast_only.empty()
            ? std::string()
            : fmt::format(" ({} by --numerics fast)", fmt::join(fast_only, " "));
    return fmt::format("legal: {}{}", fmt::join(all, " "), note);
  };
  if (tp == 0) return fmt::format("TP 0: a stage has at least one rank; {}", legal());
  if (!splits_heads(spec, tp))
    return fmt::format("TP {}: does not divide {} heads; {}", tp, spec.n_heads, legal());
  if (!splits_kv_heads(spec, tp))
    return fmt::format("TP {}: {} KV heads are neither divided by it nor divide it; {}", tp,
                       spec.n_kv_heads, legal());
  if (!invariant || chunks % tp == 0) return {};
  return fmt::format("TP {} does not divide the {} fixed chunks of invariant numerics; {}", tp,
                     chunks, legal());
}

size_t padded_ffn(const ModelSpec& spec, size_t tp) {
  return round_up(spec.ffn, kPadding * std::lcm(n_chunks(spec), tp));
}

size_t padded_vocab(const ModelSpec& spec, size_t tp) {
  return round_up(spec.vocab, kPadding * tp);
}

ShardShapes shard_shapes(const ModelSpec& spec, size_t tp, size_t rank) {
  WEFT_EXPECT(tp_problem(spec, tp, false).empty() && rank < tp);
  ShardShapes shapes;
  shapes.tp = tp;
  shapes.rank = rank;
  shapes.heads = part(spec.n_heads, tp, rank);
  const size_t sharers = std::max<size_t>(1, tp / spec.n_kv_heads);  // ranks with the same KV head
  shapes.kv_heads = part(spec.n_kv_heads, tp / sharers, rank / sharers);
  shapes.ffn = part(padded_ffn(spec, tp), tp, rank);
  shapes.vocab = part(padded_vocab(spec, tp), tp, rank);
  shapes.n_chunks = std::max<size_t>(1, n_chunks(spec) / tp);
  return shapes;
}

}  // namespace weft::planner
