#include "planner/pipeline_model.h"

#include <algorithm>

namespace weft::planner {

PipelineTimes pipeline_times(std::span<const StageAndEdge> stages) {
  PipelineTimes times;
  times.n_stages = stages.size();
  for (const StageAndEdge& part : stages) {
    const double prefill = part.stage.prefill_ms + part.edge.prefill_ms;
    const double decode = part.stage.decode_ms + part.edge.decode_ms;
    times.prefill_sum_ms += prefill;
    times.decode_sum_ms += decode;
    times.prefill_max_ms = std::max(times.prefill_max_ms, prefill);
    times.decode_max_ms = std::max(times.decode_max_ms, decode);
  }
  return times;
}

double prefill_latency_ms(const PipelineTimes& times, size_t n_chunks) {
  const double more = static_cast<double>(std::max<size_t>(1, n_chunks) - 1);
  return times.prefill_sum_ms + more * times.prefill_max_ms;
}

double decode_period_ms(const PipelineTimes& times, size_t batches_in_flight) {
  const double turns = static_cast<double>(std::max<size_t>(1, batches_in_flight));
  return std::max(times.decode_sum_ms, turns * times.decode_max_ms);
}

}  // namespace weft::planner
