// The plan as canonical JSON, and its hash.
#include "planner/plan_json.h"

#include "planner/canonical_json.h"
#include "planner/plan_fields.h"
#include "runtime/base/sha256.h"

namespace weft::planner {
namespace {

using nlohmann::json;

json stage_json(const Stage& stage) {
  json slots = json::array();
  for (const Slot& slot : stage.slots) slots.push_back({{"node", slot.node}, {"gpu", slot.gpu}});
  return {{"role", kRoleNames[static_cast<size_t>(stage.role)]},
          {"layers", json::array({stage.layers.begin, stage.layers.end})},
          {"tp", stage.tp},
          {"dp", stage.dp},
          {"ep", stage.ep},
          {"slots", std::move(slots)}};
}

json replica_json(const Replica& replica) {
  json stages = json::array();
  for (const Stage& stage : replica.stages) stages.push_back(stage_json(stage));
  return {{"count", replica.count}, {"stages", std::move(stages)}};
}

json limits_json(const Limits& limits) {
  json object = {{"graph_buckets", limits.graph_buckets}};
  for (const LimitField& limit : kLimitFields) object[limit.key] = limits.*limit.field;
  return object;
}

json formats_json(const Formats& formats) {
  json object;
  for (const FormatField& format : kFormatFields)
    object[format.key] = dtype_name(formats.*format.field);
  return object;
}

json predicted_json(const Predicted& predicted) {
  json stages = json::array();
  for (const MemoryParts& parts : predicted.rank_memory) {
    json object;
    for (const MemoryField& part : kMemoryFields) object[part.key] = parts.*part.field;
    stages.push_back(std::move(object));
  }
  json object = {{"rank_memory", std::move(stages)},
                 {"edge_token_bytes", predicted.edge_token_bytes}};
  if (!predicted.speed) return object;
  for (const SpeedField& field : kSpeedFields) object[field.key] = (*predicted.speed).*field.field;
  object["stages"] = json::array();
  for (const StageSpeed& stage : predicted.speed->stages) {
    json times;
    for (const StageSpeedField& field : kStageSpeedFields) times[field.key] = stage.*field.field;
    object["stages"].push_back(std::move(times));
  }
  return object;
}

}  // namespace

std::string to_json(const Plan& plan, WithPredicted predicted) {
  json replicas = json::array();
  for (const Replica& replica : plan.replicas) replicas.push_back(replica_json(replica));
  json object = {{"version", 1},
                 {"model", {{"name", plan.model_name}, {"facts_sha256", plan.facts_sha256}}},
                 {"cluster", plan.cluster},
                 {"formats", formats_json(plan.formats)},
                 {"numerics", kNumericsNames[static_cast<size_t>(plan.numerics)]},
                 {"limits", limits_json(plan.limits)},
                 {"replicas", std::move(replicas)}};
  if (predicted == WithPredicted::yes) object["predicted"] = predicted_json(plan.predicted);
  return canonical_json(object);
}

std::string plan_sha256(const Plan& plan) { return sha256_hex(to_json(plan, WithPredicted::no)); }

}  // namespace weft::planner
