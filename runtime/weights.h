// A rank's slice of the weights in one arena, loaded from a TensorSource.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "kernels/tensor.h"
#include "parallel/communicator.h"
#include "planner/plan.h"
#include "runtime/base/pages.h"
#include "runtime/tensor_source.h"

namespace weft::runtime {

using kernels::In;

// h, kv, f, v: this rank's query heads, KV heads, padded FFN columns and vocabulary rows; d
// head_dim. Null where the model has no such tensor.
struct LayerWeights {
  In input_norm;    // [hidden]
  In qkv;           // [(h + 2 kv) d, hidden]: query rows, key rows, value rows
  In qkv_bias;      // [(h + 2 kv) d]
  In q_norm;        // [d]
  In k_norm;        // [d]
  In o;             // [hidden, h d]
  In o_bias;        // [hidden]
  In post_norm;     // [hidden]
  In gate_up;       // [2 f, hidden]: gate rows, then up rows; zero rows beyond the model's ffn
  In gate_up_bias;  // [2 f]
  In down;          // [hidden, f]; zero columns beyond the model's ffn
  In down_bias;     // [hidden]
};

struct StageWeights {
  std::vector<LayerWeights> layers;  // of the stage, in order
  In embedding;                      // [v, hidden], first stage; zero rows beyond the vocabulary
  In final_norm;                     // [hidden], last stage
  In head;                           // [v, hidden], last stage; the embedding's memory where tied
                                     // and both are here
  Pages arena;
};

struct LoadReport {
  size_t useful_bytes = 0;  // that ended in this rank's arena, as stored in the checkpoint
  size_t read_bytes = 0;    // that this rank took from the source
  size_t mapped_bytes = 0;  // of the useful ones: pages of the files themselves
  double seconds = 0;
};

// Called with bytes done and bytes to do by this rank, from the calling thread.
using LoadProgress = std::function<void(size_t done, size_t total)>;

// Loads what tensor-parallel rank tp_rank of a stage needs, in the plan's weights dtype. Row-split
// tensors: just the rows. Column-split ones (o, down): the ranks in `node_group` (this stage's
// ranks on this host, in tp order, with their tp ranks) each read an equal share of the rows once
// and scatter the columns. With `map_files`, whole tensors of the plan's dtype are not copied:
// pages of the checkpoint's files lie in their place (WeightLoader::is_mapped). A collective of
// node_group.
StageWeights load_weights(TensorSource& source, const planner::ModelSpec& spec,
                          const planner::Plan& plan, size_t stage, size_t tp_rank,
                          parallel::Communicator& node_group,
                          const std::vector<size_t>& node_tp_ranks, kernels::Stream& stream,
                          const LoadProgress& progress, LoadReport* report, bool map_files = true);

}  // namespace weft::runtime
