// What the search asks of a cost model: the time and the memory of one stage and of one edge, for
// one workload, model, cluster and engine that the implementation was made for.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace weft::planner {

// One stage as the search sees it: what lies in it, and on what it runs.
struct StageShape {
  size_t n_layers = 0;
  bool has_embedding = false;  // the first stage
  bool has_head = false;       // the last stage
  size_t tp = 1;
  size_t ep = 1;          // ranks of the tp group that share the experts out, a divisor of tp
  size_t node_class = 0;  // index in ClusterSpec::nodes
  size_t n_nodes = 1;     // nodes that the tp group spans; 1 = inside one
  // Ranks of a node that compute at the same time, this stage's among them; 0 = its alone. Counts
  // where ranks share a host's cores and memory.
  size_t at_once = 0;

  bool operator==(const StageShape&) const = default;
};

// How a replica is driven; the grid that the search walks.
struct Schedule {
  size_t batch = 1;              // sequences that decode at once, over all batches in flight
  size_t batches_in_flight = 1;  // M: each decodes ceil(batch / M) of them
  size_t prefill_chunk = 512;    // prompt tokens of a step, at most

  bool operator==(const Schedule&) const = default;
};

// From one stage to the next.
struct EdgeShape {
  size_t from_tp = 1;
  size_t to_tp = 1;
  size_t from_class = 0;  // node class of the sender; of the receiver below
  size_t to_class = 0;
  bool across_nodes = false;

  bool operator==(const EdgeShape&) const = default;
};

struct StageTimes {
  double prefill_ms = 0;  // one chunk of a prompt: the mean over the prompt's chunks
  double decode_ms = 0;   // one step of one batch in flight at the workload's mean context
};

// A part of a rank's memory, as reports name it.
struct BytesPart {
  std::string_view title;
  size_t bytes = 0;
};

// What the search relies on:
// - Where times are affine in layers, a layer more costs the same whatever the stage's ends are.
// - Times and bytes of stages that differ only in n_layers do not fall with more layers.
// - Of the schedule, prefill_ms depends on prefill_chunk alone, decode_ms on ceil(batch / M) alone.
// - Bytes do not fall when batch, ceil(batch / M), M or prefill_chunk rises.
// - An edge inside a node costs no more than the same edge between nodes.
// - A hand-over does not get shorter with more layers.
// - Times do not fall when more ranks compute at once, and bytes do not depend on it.
class StageCosts {
 public:
  virtual ~StageCosts() = default;

  // True where the times of a stage are a constant and so much a layer: two layers then tell all.
  virtual bool affine_in_layers() const { return false; }
  // Whether times depend on StageShape::at_once.
  virtual bool shares_hosts() const { return false; }

  // Compute and the collectives inside the stage.
  virtual StageTimes stage(const StageShape& shape, const Schedule& schedule) const = 0;
  // One phase of it alone, where that is cheaper.
  virtual double prefill_ms(const StageShape& shape, const Schedule& schedule) const {
    return stage(shape, schedule).prefill_ms;
  }
  virtual double decode_ms(const StageShape& shape, const Schedule& schedule) const {
    return stage(shape, schedule).decode_ms;
  }
  virtual StageTimes edge(const EdgeShape& edge, const Schedule& schedule) const = 0;
  // Added to the last prefill stage where prefill and decode have groups of their own: one chunk's
  // KV of that stage's layers goes to the decode group, whose first stage stands for all receivers.
  // The stages before have sent theirs while the later ones computed.
  virtual double handover_ms(const EdgeShape&, size_t /*n_layers*/, const Schedule&) const {
    return 0;
  }

  // Bytes of one rank without KV: weights, activations, buffers, graphs, reserve.
  virtual size_t fixed_bytes(const StageShape& shape, const Schedule& schedule) const = 0;
  // The same by part, for reports: adds up to fixed_bytes.
  virtual std::vector<BytesPart> fixed_parts(const StageShape& shape,
                                             const Schedule& schedule) const {
    return {{"weights and buffers", fixed_bytes(shape, schedule)}};
  }
  // Bytes of one rank for one KV block (kKvBlockTokens tokens of the stage's layers).
  virtual size_t kv_block_bytes(const StageShape& shape) const = 0;
  // Bytes of one GPU of that class that a rank may use.
  virtual size_t rank_memory_bytes(size_t node_class) const = 0;
};

// Σ and max over the stages of a replica, each with the edge that follows it. With separate groups
// the prefill times are over the prefill stages, the decode times over the others.
struct PipelineTimes {
  double prefill_sum_ms = 0;
  double prefill_max_ms = 0;
  double decode_sum_ms = 0;
  double decode_max_ms = 0;
  size_t n_stages = 1;           // of the decode chain
  size_t kv_blocks = 0;          // that every stage that decodes holds at least
  bool separate_groups = false;  // prefill and decode on stages of their own
};

// What a user of one replica would measure.
struct Served {
  double ttft_ms = 0;
  double tpot_ms = 0;       // prefills of others included
  double tokens_per_s = 0;  // output tokens of this replica
  double concurrency = 0;   // sequences it really serves at once: fewer than asked when saturated
  bool saturated = false;   // requests wait for KV or for a place in the batch
};

// The closed form that the search scores with: for a fixed schedule and concurrency no time may
// fall, and no rate rise, when one of the four times of `times` rises or kv_blocks falls; and for
// a fixed replica no time may fall, nor tokens_per_s / concurrency rise, when concurrency rises: of
// equal replicas, more are never worse. What is saturated stays so under either.
class ServingModel {
 public:
  virtual ~ServingModel() = default;
  // `concurrency`: requests that this replica is asked to hold at once.
  virtual Served served(const PipelineTimes& times, const Schedule& schedule,
                        double concurrency) const = 0;
};

}  // namespace weft::planner
