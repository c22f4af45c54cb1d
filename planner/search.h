// The planner's search: of all layouts in its domain the best by one closed-form score, proved.
//
// Domain. R equal replicas; each a chain of stages of consecutive layers, uneven as needed; a stage
// is a TP group of a legal width inside one node (or, when asked, over several equal ones), with
// experts shared over ep of its ranks. Consecutive stages lie in one node or go on to another.
// Where several replicas share a node, they lie in it with the same stages, so a node of g GPUs
// takes floor(g / u) copies of a part that uses u. Optionally a replica has two chains, one that
// prefills and one that decodes. At most max_stages stages a replica. Schedules are those of
// SearchGrid.
#pragma once

#include <string>
#include <vector>

#include "planner/cluster_spec.h"
#include "planner/model_spec.h"
#include "planner/plan.h"
#include "planner/stage_cost.h"
#include "planner/workload.h"

namespace weft::planner {

inline constexpr size_t kMostSearchLayers = 1024;
inline constexpr size_t kMostSearchStages = 64;
inline constexpr size_t kMostProvedClasses = 4;  // of nodes; with more the work is bounded

struct SearchRequest {
  ModelSpec model;
  ClusterSpec cluster;
  Workload workload;
  size_t context = 0;            // tokens that the KV cache holds at least; 0 = prompt + output
  bool invariant = false;        // numerics: fewer widths are legal
  bool tp_across_nodes = false;  // TP groups wider than a node
  bool separate_groups = false;  // also replicas with prefill and decode groups
  bool expert_parallel = true;   // of models with experts
  size_t max_stages = 16;        // of a replica, both groups together
  size_t n_ranked = 10;
  // Labels that the dynamic programme may expand before the search stops and states its gap;
  // 0 = no bound up to kMostProvedClasses classes of nodes, else kBoundedWork.
  size_t max_work = 0;
};
inline constexpr size_t kBoundedWork = 2'000'000;

struct PlacedStage {
  Role role = Role::both;
  Range layers;
  StageShape shape;
  size_t part = 0;  // stages of one part share a node; counts through the replica

  bool operator==(const PlacedStage&) const = default;
};

EdgeShape edge_between(const PlacedStage& from, const PlacedStage& to);

struct Layout {
  size_t n_replicas = 1;
  Schedule schedule;                // of one replica
  std::vector<PlacedStage> stages;  // the prefill group first, where there are two

  bool operator==(const Layout&) const = default;
};

// A stage of an evaluated layout.
struct StageFigures {
  double prefill_ms = 0;  // a chunk, with the edge that follows
  double decode_ms = 0;   // a step, with the edge that follows
  size_t fixed_bytes = 0;
  std::vector<BytesPart> fixed_parts;
  size_t kv_block_bytes = 0;
  size_t rank_memory_bytes = 0;
  size_t kv_blocks = 0;  // that fit beside fixed_bytes
};

struct Candidate {
  Layout layout;
  std::vector<StageFigures> stages;
  PipelineTimes times;
  Served served;             // of one replica
  double latency_ms = 0;     // TTFT + (output - 1) * TPOT
  double tokens_per_s = 0;   // of all replicas
  size_t gpus = 0;           // of all replicas
  double traffic_bytes = 0;  // between nodes, a request
  size_t nodes = 0;          // that have a GPU of the layout
  bool meets_limits = false;
};

struct SearchGrid {
  std::vector<size_t> widths;   // legal TP widths that fit a node (or several, when asked)
  std::vector<size_t> batches;  // powers of two to the KV limit and the concurrency of a replica
  std::vector<size_t> chunks;   // 512 to 8192, to the first that holds a prompt
  size_t most_stages = 0;
  size_t most_in_flight = 0;  // M from 1 to 2 x stages, at most the batch
  size_t most_replicas = 0;
};
std::string to_text(const SearchGrid& grid);

// Why layouts of one kind are not in the ranking.
struct Refusal {
  std::string layout;  // "TP 16", "TP 2 x PP 1"
  std::string reason;  // "short 1.2 GiB: weights 61.0 + KV 14.1 of 79.2 GiB"
  std::string remedy;  // what would make it fit; empty where nothing does
};

struct SearchResult {
  bool found = false;  // a layout that meets the limits
  Candidate best;      // where none does: the one that comes closest, or none that fits (no stages)
  // The best, then the best balanced layout of each other TP x PP, its layers shifted at will.
  std::vector<Candidate> ranked;
  std::vector<Candidate> front;  // none of these is beaten in latency, tokens/s and GPUs by another
  std::vector<Refusal> refused;
  SearchGrid grid;
  std::string verdict;  // why the winner beats the runner-up, or why nothing was found
  bool proved = true;   // else the search ended at max_work
  double gap = 0;       // the score may be better than the best's by this fraction at most
  double search_ms = 0;
  size_t n_bounds = 0;    // schedules and shapes bounded
  size_t n_expanded = 0;  // labels expanded
};

// Throws Error for bad requests (each problem listed). Deterministic but for search_ms.
SearchResult search(const SearchRequest& request, const StageCosts& costs,
                    const ServingModel& serving);

// "2 replicas of 31x8,31x8": layers x tp, as in Plan, "31x8 ep4" with experts shared over 4 ranks;
// " | " before the decode group.
std::string layout_text(const Layout& layout);

// Predicts a layout given by hand; throws Error where a stage has no room, with its numbers.
Candidate evaluate(const SearchRequest& request, const StageCosts& costs,
                   const ServingModel& serving, const Layout& layout);

// The plan of a layout; formats and numerics are those that the costs were made for. Throws Error
// where it does not meet the limits.
Plan plan_of(const SearchRequest& request, const SearchResult& result, const Formats& formats);
Plan plan_of(const SearchRequest& request, const Candidate& candidate, const Formats& formats);

}  // namespace weft::planner
