#include "launch/plan_breakdown.h"

namespace weft::launch {
namespace {

using planner::StepParts;

struct PartField {
  std::string_view title;
  double StepParts::*field;
};
constexpr PartField kParts[] = {
    {"products", &StepParts::products_ms},   {"experts", &StepParts::experts_ms},
    {"attention", &StepParts::attention_ms}, {"all-reduce", &StepParts::collectives_ms},
    {"other", &StepParts::other_ms},         {"head", &StepParts::head_ms},
    {"host", &StepParts::host_ms},
};

std::vector<TimePart> no_time() {
  std::vector<TimePart> parts;
  for (const PartField& part : kParts) parts.push_back({part.title, 0});
  parts.push_back({"edges", 0});
  return parts;
}

// What a stage's time has beside its parts is the edge that follows.
void add(const StepParts& step, double with_edge_ms, std::vector<TimePart>& to) {
  for (size_t i = 0; i < std::size(kParts); ++i) to[i].ms += step.*kParts[i].field;
  to.back().ms += with_edge_ms - step.total_ms();
}

}  // namespace

Breakdown breakdown(const PlanCase& of, const planner::Candidate& candidate) {
  Breakdown made = {no_time(), no_time()};
  const planner::Schedule& schedule = candidate.layout.schedule;
  for (size_t s = 0; s < candidate.stages.size(); ++s) {
    const planner::PlacedStage& stage = candidate.layout.stages[s];
    if (stage.role != planner::Role::decode)
      add(of.model->prefill_parts(stage.shape, schedule), candidate.stages[s].prefill_ms,
          made.prefill);
    if (stage.role != planner::Role::prefill)
      add(of.model->decode_parts(stage.shape, schedule), candidate.stages[s].decode_ms,
          made.decode);
  }
  return made;
}

}  // namespace weft::launch
