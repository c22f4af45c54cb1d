// The cost model asked once: times of every kind of stage and edge by chunk and by batch in flight,
// and the layers that fit. What the search then does is look-ups.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "planner/search_space.h"

namespace weft::planner {

// Which ends of the model a stage has.
enum Ends : size_t { kMiddle = 0, kFirst = 1, kLast = 2, kWhole = 3 };
inline constexpr size_t kEnds = 4;

// One phase (prefill of a chunk size, or decode of a batch in flight).
struct TimeTable {
  size_t n_layers = 0;
  size_t n_ports = 0;
  std::vector<double> stage_ms;     // [kind][ends][n_layers + 1]
  std::vector<double> edge_ms;      // [from port][to port][across nodes]
  std::vector<double> handover_ms;  // [from][to][across][n_layers + 1]; where groups are separate

  const double* stage(size_t kind, size_t ends) const {
    return &stage_ms[(kind * kEnds + ends) * (n_layers + 1)];
  }
  size_t edge_index(const Kind& from, const Kind& to, bool across) const {
    return (from.port * n_ports + to.port) * 2 + (across ? 1 : 0);
  }
  double handover(size_t edge, size_t layers) const {
    return handover_ms[edge * (n_layers + 1) + layers];
  }
  // The least over all receivers.
  double least_edge(const Kind& from) const;
  double least_handover(const Kind& from, size_t layers) const;
};

// Most layers of a stage that fit, [kind][ends]; a stage with both ends holds all or none.
using Capacities = std::vector<size_t>;

class StageTables {
 public:
  StageTables(const Space& space, const StageCosts& costs) : space_(space), costs_(costs) {}

  // While so many stages compute at once.
  const TimeTable& prefill(size_t chunk, size_t at_work);
  const TimeTable& decode(size_t batch_in_flight, size_t at_work);
  // With so many KV blocks at least. Equal ones are the same object.
  const Capacities& capacities(const Schedule& schedule, size_t kv_blocks);
  // The same with the bytes of the least schedule: never fewer layers than with another.
  const Capacities& most_capacities(size_t kv_blocks) {
    return capacities({1, 1, space_.chunks.front()}, kv_blocks);
  }
  bool fits(const StageShape& shape, const Schedule& schedule, size_t kv_blocks) const;

 private:
  enum class Phase { prefill, decode };

  // What a table is of.
  struct Of {
    Phase phase;
    Schedule schedule;
    size_t at_work;
  };
  TimeTable make_table(const Of& of) const;
  double stage_ms(const Of& of, const Kind& kind, size_t layers, size_t ends) const;
  void fill_stage(const Of& of, const Kind& kind, size_t ends, double layer_ms,
                  double* times) const;
  void fill_edges(const Schedule& schedule, Phase phase, TimeTable& table) const;
  size_t capacity(const Kind& kind, size_t ends, const Schedule& schedule, size_t kv_blocks) const;

  const Space& space_;
  const StageCosts& costs_;
  using Sizes = std::pair<size_t, size_t>;  // chunk or batch in flight, stages at work
  std::map<Sizes, TimeTable> prefill_;
  std::map<Sizes, TimeTable> decode_;
  std::set<Capacities> kept_capacities_;
  std::map<std::tuple<size_t, size_t, size_t, size_t>, const Capacities*> capacities_;
};

inline size_t batch_in_flight(const Schedule& schedule) {
  return (schedule.batch + schedule.batches_in_flight - 1) / schedule.batches_in_flight;
}

}  // namespace weft::planner
