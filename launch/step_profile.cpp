#include "launch/step_profile.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "parallel/gather.h"
#include "planner/catalog.h"

namespace weft::launch {
namespace {

using planner::StepParts;
using runtime::PartSpan;
using runtime::StepPart;

}  // namespace

double total_ms(const PartTimes& times) { return std::accumulate(times.begin(), times.end(), 0.0); }

std::vector<std::vector<PartSpan>> gather_spans(const parallel::MpiSession& session,
                                                const std::vector<PartSpan>& mine) {
  static_assert(std::is_trivially_copyable_v<PartSpan>);
  const std::vector<size_t> counts = parallel::gather(session, mine.size());
  const size_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<PartSpan> padded = mine, all(most * counts.size());
  padded.resize(most);
  parallel::gather_bytes(session, padded.data(), all.data(), most * sizeof(PartSpan));
  std::vector<std::vector<PartSpan>> by_rank;
  if (session.rank() != 0) return by_rank;
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * most);
    by_rank.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(counts[rank]));
  }
  return by_rank;
}

void summarise(const Profile& profile, CaseProfile& of) {
  size_t rank = 0;
  for (size_t s = 0; s < profile.stages.size(); ++s) {
    const planner::Stage& stage = profile.stages[s];
    for (size_t tp_rank = 0; tp_rank < stage.tp; ++tp_rank, ++rank) {
      RankTimes& times = of.ranks.emplace_back();
      times.rank = rank;
      times.stage = s;
      times.tp_rank = tp_rank;
      for (size_t layer = stage.layers.begin; layer < stage.layers.end; ++layer)
        times.layers.push_back({layer, {}});
      for (const PartSpan& span : profile.spans[rank]) {
        if (span.batch < of.first_batch || span.batch >= of.first_batch + of.n_batches) continue;
        const auto part = static_cast<size_t>(span.part);
        const double ms = span.us * 1e-3 / static_cast<double>(of.n_batches);
        times.ms[part] += ms;
        if (span.layer >= 0)
          times.layers[static_cast<size_t>(span.layer) - stage.layers.begin].ms[part] += ms;
      }
    }
  }
}

const std::vector<PredictedPart>& predicted_parts() {
  static const std::vector<PredictedPart> parts = {
      {"products", {StepPart::qkv, StepPart::o, StepPart::ffn}, &StepParts::products_ms},
      {"attention", {StepPart::attention}, &StepParts::attention_ms},
      {"all-reduce", {StepPart::all_reduce}, &StepParts::collectives_ms},
      {"other", {StepPart::embedding, StepPart::norm}, &StepParts::other_ms},
      {"head", {StepPart::head}, &StepParts::head_ms},
      {"host", {StepPart::sampling, StepPart::host}, &StepParts::host_ms},
  };
  return parts;
}

std::vector<std::optional<StepParts>> predict_stages(const planner::ModelSpec& spec,
                                                     const planner::Plan& plan, const StepCase& of,
                                                     const planner::MachineProfile* machine,
                                                     const planner::EngineProfile& engine) {
  const std::vector<planner::Stage>& stages = plan.replicas.front().stages;
  std::vector<std::optional<StepParts>> predicted(stages.size());
  if (machine == nullptr || dtype_bytes(plan.formats.weights) != 2) return predicted;
  planner::StepSetting setting;
  setting.model = &spec;
  setting.machine = machine;
  setting.engine = &engine;
  for (size_t s = 0; s < stages.size(); ++s) {
    planner::StageShape shape;
    shape.n_layers = stages[s].layers.size();
    shape.tp = stages[s].tp;
    shape.has_embedding = s == 0;
    shape.has_head = s + 1 == stages.size();
    predicted[s] =
        of.prefill ? planner::prefill_step(setting, shape, of.tokens, 0)
                   : planner::decode_step(setting, shape, of.batch, static_cast<double>(of.tokens));
  }
  return predicted;
}

}  // namespace weft::launch
