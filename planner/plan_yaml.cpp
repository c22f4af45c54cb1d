// The plan as YAML, version 1.
#include <fmt/format.h>

#include <algorithm>

#include "planner/memory_model.h"
#include "planner/model_fields.h"
#include "planner/plan.h"
#include "planner/plan_fields.h"
#include "planner/yaml_reader.h"
#include "runtime/base/file.h"

namespace weft::planner {
namespace {

constexpr size_t kMostBytes = size_t{1} << 60;  // of a predicted part
constexpr size_t kSlotsPerLine = 4;

using Keys = std::vector<std::string_view>;

template <class Fields>
Keys keys_of(const Fields& fields) {
  Keys keys;
  for (const auto& field : fields) keys.push_back(field.key);
  return keys;
}

Formats read_formats(YamlValue map) {
  map.keys(keys_of(kFormatFields));
  Formats formats;
  for (const FormatField& format : kFormatFields)
    formats.*format.field = kPlanDTypes[map.at(format.key).choice(kPlanDTypeNames)];
  return formats;
}

Limits read_limits(YamlValue map) {
  Keys keys = keys_of(kLimitFields);
  keys.push_back("graph_buckets");
  map.keys(keys);
  Limits limits;
  for (const LimitField& limit : kLimitFields)
    limits.*limit.field = map.at(limit.key).count(1, limit.most);
  if (!map.has("graph_buckets")) return limits;
  for (const YamlValue& bucket : map.at("graph_buckets").list(4096))
    limits.graph_buckets.push_back(bucket.count(1, size_t{1} << 24));
  return limits;
}

Range read_layers(const YamlValue& value) {
  const std::vector<YamlValue> ends = value.list(2);
  if (ends.size() != 2) throw value.error("must be [first, end)");
  const Range layers = {ends[0].count(0, kMostPlanLayers), ends[1].count(0, kMostPlanLayers)};
  if (layers.begin >= layers.end)
    throw value.error(fmt::format("[{}, {}) are no layers", layers.begin, layers.end));
  return layers;
}

Stage read_stage(YamlValue map) {
  constexpr std::string_view keys[] = {"role", "layers", "tp", "dp", "ep", "slots"};
  constexpr std::string_view slot_keys[] = {"node", "gpu"};
  map.keys(keys);
  Stage stage;
  stage.role = static_cast<Role>(map.at("role").choice(kRoleNames));
  stage.layers = read_layers(map.at("layers"));
  stage.tp = map.at("tp").count(1, kMostSlots);
  stage.dp = map.at("dp").count(1, kMostSlots);
  stage.ep = map.at("ep").count(1, kMostSlots);
  for (YamlValue& slot : map.at("slots").list(kMostSlots)) {
    slot.keys(slot_keys);
    stage.slots.push_back(
        {slot.at("node").count(0, kMostSlots), slot.at("gpu").count(0, kMostSlots)});
  }
  return stage;
}

Replica read_replica(YamlValue map) {
  constexpr std::string_view keys[] = {"count", "stages"};
  map.keys(keys);
  Replica replica;
  replica.count = map.at("count").count(1, kMostSlots);
  for (const YamlValue& stage : map.at("stages").list(kMostPlanLayers))
    replica.stages.push_back(read_stage(stage));
  return replica;
}

double read_speed(const YamlValue& value) {
  const double speed = value.number();
  if (speed < 0) throw value.error(fmt::format("{} is negative", speed));
  return speed;
}

// All of it, or nothing.
std::optional<Speed> read_speeds(const YamlValue& map) {
  const auto has = [&](const SpeedField& field) { return map.has(field.key); };
  if (!map.has("stages") && std::none_of(std::begin(kSpeedFields), std::end(kSpeedFields), has))
    return std::nullopt;
  Speed speed;
  for (const SpeedField& field : kSpeedFields) speed.*field.field = read_speed(map.at(field.key));
  for (const YamlValue& stage : map.at("stages").list(kMostPlanLayers)) {
    stage.keys(keys_of(kStageSpeedFields));
    StageSpeed& times = speed.stages.emplace_back();
    for (const StageSpeedField& field : kStageSpeedFields)
      times.*field.field = read_speed(stage.at(field.key));
  }
  return speed;
}

Predicted read_predicted(YamlValue map) {
  constexpr std::string_view keys[] = {"rank_memory", "edge_token_bytes", "ttft_ms",
                                       "tpot_ms",     "tokens_per_s",     "stages"};
  map.keys(keys);
  Predicted predicted;
  for (YamlValue& parts : map.at("rank_memory").list(kMostPlanLayers)) {
    parts.keys(keys_of(kMemoryFields));
    MemoryParts& memory = predicted.rank_memory.emplace_back();
    for (const MemoryField& part : kMemoryFields)
      memory.*part.field = parts.at(part.key).count(0, kMostBytes);
  }
  if (map.has("edge_token_bytes"))
    for (const YamlValue& bytes : map.at("edge_token_bytes").list(kMostPlanLayers))
      predicted.edge_token_bytes.push_back(bytes.count(0, kMostBytes));
  predicted.speed = read_speeds(map);
  return predicted;
}

std::string read_sha256(const YamlValue& value) {
  const std::string hex = value.text();
  if (hex.size() != 64 || hex.find_first_not_of("0123456789abcdef") != hex.npos)
    throw value.error("must be 64 lower-case hexadecimal digits");
  return hex;
}

std::string formats_line(const Formats& formats) {
  std::string items;
  for (const FormatField& format : kFormatFields)
    items += fmt::format("{}{}: {}", items.empty() ? "" : ", ", format.key,
                         dtype_name(formats.*format.field));
  return fmt::format("formats: {{{}}}\n", items);
}

std::string limits_lines(const Limits& limits) {
  std::string text = "limits:\n";
  for (const LimitField& limit : kLimitFields)
    text += fmt::format("  {}: {}  # {}\n", limit.key, limits.*limit.field, limit.what);
  return text + fmt::format("  graph_buckets: [{}]\n", fmt::join(limits.graph_buckets, ", "));
}

std::string slots_lines(const std::vector<Slot>& slots) {
  std::string text = "        slots: [";
  for (size_t i = 0; i < slots.size(); ++i) {
    const char* separator = i == 0 ? "" : i % kSlotsPerLine == 0 ? ",\n                " : ", ";
    text += fmt::format("{}{{node: {}, gpu: {}}}", separator, slots[i].node, slots[i].gpu);
  }
  return text + "]\n";
}

std::string memory_comment(const MemoryParts& memory) {
  std::string text;
  for (const MemoryField& part : kMemoryFields)
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : " + ", part.title, gib_text(memory.*part.field));
  return fmt::format("a rank holds {} GiB: {}", gib_text(memory.total()), text);
}

std::string stage_lines(const Plan& plan, const Replica& replica, size_t s) {
  const Stage& stage = replica.stages[s];
  std::string text = fmt::format("      # Stage {}: {} layers on {} ranks\n", s,
                                 stage.layers.size(), stage.tp * stage.dp);
  if (plan.predicted.rank_memory.size() == replica.stages.size())
    text += fmt::format("      # {}\n", memory_comment(plan.predicted.rank_memory[s]));
  text += fmt::format("      - role: {}\n", kRoleNames[static_cast<size_t>(stage.role)]);
  text += fmt::format("        layers: [{}, {}]  # the first, and the one after the last\n",
                      stage.layers.begin, stage.layers.end);
  text +=
      fmt::format("        tp: {}\n        dp: {}\n        ep: {}\n", stage.tp, stage.dp, stage.ep);
  return text + slots_lines(stage.slots);
}

std::string replica_lines(const Plan& plan, const Replica& replica) {
  std::string text = fmt::format("  - count: {}\n    stages:{}\n", replica.count,
                                 replica.stages.empty() ? " []" : "");
  for (size_t s = 0; s < replica.stages.size(); ++s) text += stage_lines(plan, replica, s);
  return text;
}

std::string speed_lines(const Speed& speed) {
  std::string text;
  for (const SpeedField& field : kSpeedFields)
    text += fmt::format("  {}: {}  # {}\n", field.key, speed.*field.field, field.what);
  text += fmt::format("  stages:{}\n", speed.stages.empty() ? " []" : "  # a chunk, a step");
  for (const StageSpeed& stage : speed.stages) {
    std::string items;
    for (const StageSpeedField& field : kStageSpeedFields)
      items += fmt::format("{}{}: {}", items.empty() ? "" : ", ", field.key, stage.*field.field);
    text += fmt::format("    - {{{}}}\n", items);
  }
  return text;
}

std::string predicted_lines(const Predicted& predicted) {
  if (predicted.rank_memory.empty() && !predicted.speed) return "";
  std::string text = fmt::format(
      "predicted:  # not part of the plan's hash\n  rank_memory:{}  # bytes of a rank, a stage a "
      "line\n",
      predicted.rank_memory.empty() ? " []" : "");
  for (const MemoryParts& memory : predicted.rank_memory) {
    std::string items;
    for (const MemoryField& part : kMemoryFields)
      items += fmt::format("{}{}: {}", items.empty() ? "" : ", ", part.key, memory.*part.field);
    text += fmt::format("    - {{{}}}\n", items);
  }
  if (!predicted.edge_token_bytes.empty())
    text += fmt::format("  edge_token_bytes: [{}]  # of a token, from each stage to the next\n",
                        fmt::join(predicted.edge_token_bytes, ", "));
  return predicted.speed ? text + speed_lines(*predicted.speed) : text;
}

}  // namespace

Plan parse_plan_yaml(std::string_view text, const std::string& where) {
  constexpr std::string_view keys[] = {"version",  "model",  "cluster",  "formats",
                                       "numerics", "limits", "replicas", "predicted"};
  constexpr std::string_view model_keys[] = {"name", "facts_sha256"};
  const YamlNode root = parse_yaml(text, where);
  YamlValue map(root, where, "");
  map.keys(keys);
  map.at("version").only(1);
  Plan plan;
  YamlValue model = map.at("model");
  model.keys(model_keys);
  plan.model_name = model.at("name").text();
  plan.facts_sha256 = read_sha256(model.at("facts_sha256"));
  plan.cluster = map.at("cluster").text();
  plan.formats = read_formats(map.at("formats"));
  plan.numerics = static_cast<Numerics>(map.at("numerics").choice(kNumericsNames));
  plan.limits = read_limits(map.at("limits"));
  for (const YamlValue& replica : map.at("replicas").list(4096))
    plan.replicas.push_back(read_replica(replica));
  if (map.has("predicted")) plan.predicted = read_predicted(map.at("predicted"));
  return plan;
}

Plan read_plan_yaml(const std::string& path) {
  return parse_plan_yaml(read_text(path, kMostYamlBytes), path);
}

std::string to_yaml(const Plan& plan) {
  std::string text =
      "# A plan of weft: what the runtime executes, literally. Change it with care:\n";
  text += "# it is checked again, against the model and the job, wherever it is read.\n";
  text += fmt::format("# Layout {} (layers x tensor-parallel ranks): {} ranks.\n",
                      layout_text(plan), world_size(plan));
  text += "version: 1\n";
  text += fmt::format("model:\n  name: {}\n", yaml_text(plan.model_name));
  text +=
      fmt::format("  facts_sha256: {}  # a model of other facts is refused\n", plan.facts_sha256);
  text += fmt::format("cluster: {}\n", yaml_text(plan.cluster));
  text += formats_line(plan.formats);
  text += fmt::format("numerics: {}  # invariant: the same bits in every layout\n",
                      kNumericsNames[static_cast<size_t>(plan.numerics)]);
  text += limits_lines(plan.limits);
  text += fmt::format("replicas:{}\n", plan.replicas.empty() ? " []" : "");
  for (const Replica& replica : plan.replicas) text += replica_lines(plan, replica);
  return text + predicted_lines(plan.predicted);
}

}  // namespace weft::planner
