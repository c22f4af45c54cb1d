// Tables are made when first asked for and kept for the whole search.
#include "planner/stage_tables.h"

#include <algorithm>

#include "planner/bisect.h"

namespace weft::planner {
namespace {

// Over the edges that leave a kind of stage.
template <class Time>
double least(const TimeTable& table, const Kind& from, Time&& time) {
  double found = kNever;
  const size_t first = from.port * table.n_ports * 2;
  for (size_t edge = first; edge < first + table.n_ports * 2; ++edge)
    found = std::min(found, time(edge));
  return found;
}

}  // namespace

double TimeTable::least_edge(const Kind& from) const {
  return least(*this, from, [&](size_t edge) { return edge_ms[edge]; });
}

double TimeTable::least_handover(const Kind& from, size_t layers) const {
  return least(*this, from, [&](size_t edge) { return handover(edge, layers); });
}

const TimeTable& StageTables::prefill(size_t chunk, size_t at_work) {
  const auto found = prefill_.find({chunk, at_work});
  if (found != prefill_.end()) return found->second;
  return prefill_
      .emplace(Sizes(chunk, at_work), make_table({Phase::prefill, {1, 1, chunk}, at_work}))
      .first->second;
}

const TimeTable& StageTables::decode(size_t batch, size_t at_work) {
  const auto found = decode_.find({batch, at_work});
  if (found != decode_.end()) return found->second;
  const Schedule schedule = {batch, 1, space_.chunks.back()};
  return decode_.emplace(Sizes(batch, at_work), make_table({Phase::decode, schedule, at_work}))
      .first->second;
}

void StageTables::fill_stage(const Of& of, const Kind& kind, size_t ends, double layer_ms,
                             double* times) const {
  const auto ask = [&](size_t layers) { return stage_ms(of, kind, layers, ends); };
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

double StageTables::stage_ms(const Of& of, const Kind& kind, size_t layers, size_t ends) const {
  const StageShape shape = space_.shape(kind, layers, ends & kFirst, ends & kLast, of.at_work);
  return of.phase == Phase::prefill ? costs_.prefill_ms(shape, of.schedule)
                                    : costs_.decode_ms(shape, of.schedule);
}

TimeTable StageTables::make_table(const Of& of) const {
  TimeTable table;
  table.n_layers = space_.n_layers;
  table.n_ports = space_.n_ports;
  table.stage_ms.assign(space_.kinds.size() * kEnds * (table.n_layers + 1), 0);
  for (size_t k = 0; k < space_.kinds.size(); ++k) {
    const Kind& kind = space_.kinds[k];
    double layer_ms = 0;
    if (costs_.affine_in_layers())
      layer_ms = stage_ms(of, kind, 2, kMiddle) - stage_ms(of, kind, 1, kMiddle);
    for (size_t ends = 0; ends < kEnds; ++ends)
      fill_stage(of, kind, ends, layer_ms,
                 &table.stage_ms[(k * kEnds + ends) * (table.n_layers + 1)]);
  }
  fill_edges(of.schedule, of.phase, table);
  return table;
}

// Edges that can't be stay out of every minimum.
void StageTables::fill_edges(const Schedule& schedule, Phase phase, TimeTable& table) const {
  const bool prefills = phase == Phase::prefill;
  const bool hands_over = prefills && space_.separate_groups;
  table.edge_ms.assign(table.n_ports * table.n_ports * 2, kNever);
  if (hands_over) table.handover_ms.assign(table.edge_ms.size() * (table.n_layers + 1), kNever);
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
        for (size_t n = 1; hands_over && n <= table.n_layers; ++n)
          table.handover_ms[i * (table.n_layers + 1) + n] = costs_.handover_ms(edge, n, schedule);
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
