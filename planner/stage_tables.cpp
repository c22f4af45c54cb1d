// Tables are made when first asked for and kept for the whole search.
#include "planner/stage_tables.h"

#include <algorithm>

#include "planner/bisect.h"

namespace weft::planner {
namespace {

double least(const TimeTable& table, const std::vector<double>& times, const Kind& from) {
  const auto begin = times.begin() + static_cast<ptrdiff_t>(from.port * table.n_ports * 2);
  return *std::min_element(begin, begin + static_cast<ptrdiff_t>(table.n_ports * 2));
}

}  // namespace

double TimeTable::least_edge(const Kind& from) const { return least(*this, edge_ms, from); }
double TimeTable::least_handover(const Kind& from) const { return least(*this, handover_ms, from); }

const TimeTable& StageTables::prefill(size_t chunk) {
  const auto found = prefill_.find(chunk);
  if (found != prefill_.end()) return found->second;
  return prefill_.emplace(chunk, make_table({1, 1, chunk}, Phase::prefill)).first->second;
}

const TimeTable& StageTables::decode(size_t batch) {
  const auto found = decode_.find(batch);
  if (found != decode_.end()) return found->second;
  return decode_.emplace(batch, make_table({batch, 1, space_.chunks.back()}, Phase::decode))
      .first->second;
}

void StageTables::fill_stage(const Kind& kind, size_t ends, const Schedule& schedule, Phase phase,
                             double layer_ms, double* times) const {
  const auto ask = [&](size_t layers) { return stage_ms(kind, layers, ends, schedule, phase); };
  const size_t n = space_.n_layers;
  if (ends == kWhole) {
    times[n] = ask(n);
  } else if (costs_.affine_in_layers()) {
    const double one = ask(1);
    for (size_t i = 1; i <= n; ++i) times[i] = one + static_cast<double>(i - 1) * layer_ms;
  } else {
    for (size_t i = 1; i <= n; ++i) times[i] = ask(i);
  }
}

double StageTables::stage_ms(const Kind& kind, size_t layers, size_t ends, const Schedule& schedule,
                             Phase phase) const {
  const StageShape shape = space_.shape(kind, layers, ends & kFirst, ends & kLast);
  return phase == Phase::prefill ? costs_.prefill_ms(shape, schedule)
                                 : costs_.decode_ms(shape, schedule);
}

TimeTable StageTables::make_table(const Schedule& schedule, Phase phase) const {
  TimeTable table;
  table.n_layers = space_.n_layers;
  table.n_ports = space_.n_ports;
  table.stage_ms.assign(space_.kinds.size() * kEnds * (table.n_layers + 1), 0);
  for (size_t k = 0; k < space_.kinds.size(); ++k) {
    const Kind& kind = space_.kinds[k];
    double layer_ms = 0;
    if (costs_.affine_in_layers())
      layer_ms =
          stage_ms(kind, 2, kMiddle, schedule, phase) - stage_ms(kind, 1, kMiddle, schedule, phase);
    for (size_t ends = 0; ends < kEnds; ++ends)
      fill_stage(kind, ends, schedule, phase, layer_ms,
                 &table.stage_ms[(k * kEnds + ends) * (table.n_layers + 1)]);
  }
  fill_edges(schedule, phase, table);
  return table;
}

// Edges that can't be stay out of every minimum.
void StageTables::fill_edges(const Schedule& schedule, Phase phase, TimeTable& table) const {
  const bool prefills = phase == Phase::prefill;
  table.edge_ms.assign(table.n_ports * table.n_ports * 2, kNever);
  if (prefills) table.handover_ms = table.edge_ms;
  if (space_.most_gpus < 2) return;
  for (const Kind& from : space_.kinds) {
    for (const Kind& to : space_.kinds) {
      if (from.ep != 1 || to.ep != 1) continue;  // one kind a port
      for (const bool across : {false, true}) {
        if (across && space_.n_nodes < 2) continue;
        const EdgeShape edge = {from.tp, to.tp, from.node_class, to.node_class, across};
        const size_t i = table.edge_index(from, to, across);
        const StageTimes ms = costs_.edge(edge, schedule);
        table.edge_ms[i] = prefills ? ms.prefill_ms : ms.decode_ms;
        if (prefills) table.handover_ms[i] = costs_.handover_ms(edge, schedule);
      }
    }
  }
}

bool StageTables::fits(const StageShape& shape, const Schedule& schedule, size_t kv_blocks) const {
  const size_t memory = costs_.rank_memory_bytes(shape.node_class);
  const size_t fixed = costs_.fixed_bytes(shape, schedule);
  if (fixed > memory) return false;
  const size_t block = costs_.kv_block_bytes(shape);
  return block == 0 || kv_blocks <= (memory - fixed) / block;
}

size_t StageTables::capacity(const Kind& kind, size_t ends, const Schedule& schedule,
                             size_t kv_blocks) const {
  const auto holds = [&](size_t layers) {
    return fits(space_.shape(kind, layers, ends & kFirst, ends & kLast), schedule, kv_blocks);
  };
  if (ends == kWhole) return holds(space_.n_layers) ? space_.n_layers : 0;
  return last_that(0, space_.n_layers, holds);
}

const Capacities& StageTables::capacities(const Schedule& schedule, size_t kv_blocks) {
  const auto key =
      std::tuple(schedule.batch, schedule.batches_in_flight, schedule.prefill_chunk, kv_blocks);
  const auto found = capacities_.find(key);
  if (found != capacities_.end()) return *found->second;
  Capacities made(space_.kinds.size() * kEnds, 0);
  for (size_t k = 0; k < space_.kinds.size(); ++k)
    for (size_t ends = 0; ends < kEnds; ++ends)
      made[k * kEnds + ends] = capacity(space_.kinds[k], ends, schedule, kv_blocks);
  const Capacities& kept = *kept_capacities_.insert(std::move(made)).first;
  capacities_.emplace(key, &kept);
  return kept;
}

}  // namespace weft::planner
