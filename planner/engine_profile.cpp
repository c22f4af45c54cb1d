// Engine profiles as YAML, and which habits a version has.
#include "planner/engine_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "planner/unknown_name.h"
#include "planner/yaml_reader.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

struct ConstantField {
  std::string_view key;
  double EngineConstants::*field;
};
constexpr ConstantField kConstantFields[] = {
    {"step_us", &EngineConstants::step_us},
    {"layer_us", &EngineConstants::layer_us},
    {"sequence_us", &EngineConstants::sequence_us},
    {"products", &EngineConstants::products},
    {"attention", &EngineConstants::attention},
    {"all_reduce_us", &EngineConstants::all_reduce_us},
    {"prefill_products", &EngineConstants::prefill_products},
    {"prefill_layer_us", &EngineConstants::prefill_layer_us},
    {"experts_idle", &EngineConstants::experts_idle},
    {"experts_bandwidth", &EngineConstants::experts_bandwidth},
    {"experts_compute", &EngineConstants::experts_compute},
};

constexpr std::string_view kHabitKeys[] = {
    "memory_fraction", "reserve_gib", "kv_of_bf16",  "kv_of_fp8",  "batch_limit",
    "prefill_chunk",   "arrivals",    "burst_share", "wait_steps", "first_token_steps"};
constexpr std::string_view kArrivalNames[] = {"bursts", "steady"};

double within(const YamlValue& value, double least, double most) {
  const double number = value.number();
  if (number < least || number > most)
    throw value.error(fmt::format("{} is not from {} to {}", number, least, most));
  return number;
}

bool is_factor(std::string_view key) { return !key.ends_with("_us") && key != "experts_idle"; }

EngineConstants read_constants(const YamlValue& map) {
  std::vector<std::string_view> keys;
  for (const ConstantField& constant : kConstantFields) keys.push_back(constant.key);
  map.keys(keys);
  EngineConstants constants;
  for (const ConstantField& constant : kConstantFields) {
    const YamlValue value = map.at(constant.key);
    const double least = is_factor(constant.key) ? 1e-3 : 0;
    const double most = constant.key == "experts_idle" ? 1 : 1e6;
    constants.*constant.field = within(value, least, most);
  }
  return constants;
}

// `skipped` keys are the caller's.
EngineHabits read_habits(const YamlValue& map, EngineHabits habits, std::string_view skipped) {
  std::vector<std::string_view> keys(std::begin(kHabitKeys), std::end(kHabitKeys));
  keys.push_back(skipped);
  map.keys(keys);
  const auto number = [&](const char* key, double least, double most, double& to) {
    if (map.has(key)) to = within(map.at(key), least, most);
  };
  const auto format = [&](const char* key, NumberFormat& to) {
    if (map.has(key)) to = static_cast<NumberFormat>(map.at(key).choice(kNumberFormatNames));
  };
  number("memory_fraction", 0.01, 1, habits.memory_fraction);
  number("reserve_gib", 0, 1e6, habits.reserve_gib);
  format("kv_of_bf16", habits.kv_of_bf16);
  format("kv_of_fp8", habits.kv_of_fp8);
  if (map.has("batch_limit")) habits.batch_limit = map.at("batch_limit").count(1, 1 << 20);
  if (map.has("prefill_chunk")) habits.prefill_chunk = map.at("prefill_chunk").count(1, 1 << 30);
  if (map.has("arrivals")) habits.steady = map.at("arrivals").choice(kArrivalNames) == 1;
  number("burst_share", 0, 1, habits.burst_share);
  number("wait_steps", 0, 100, habits.wait_steps);
  number("first_token_steps", 0, 100, habits.first_token_steps);
  return habits;
}

// The next number of a version and what follows it: "0.12.0" gives 0 and ".12.0".
size_t next_number(std::string_view& version) {
  const size_t begin = version.find_first_of("0123456789");
  if (begin == version.npos) {
    version = {};
    return 0;
  }
  size_t number = 0;
  const char* end = version.data() + version.size();
  const auto [stop, bad] = std::from_chars(version.data() + begin, end, number);
  version = {stop, static_cast<size_t>(end - stop)};
  return bad == std::errc() ? number : 0;
}

// Compares the first three numbers; an unknown version is older than all.
bool older(std::string_view a, std::string_view b) {
  for (int part = 0; part < 3; ++part) {
    const size_t in_a = next_number(a);
    const size_t in_b = next_number(b);
    if (in_a != in_b) return in_a < in_b;
  }
  return false;
}

std::string habits_text(const EngineHabits& habits, const std::string& indent) {
  const auto line = [&](const char* key, const auto& value) {
    return fmt::format("{}{}: {}\n", indent, key, value);
  };
  return line("memory_fraction", habits.memory_fraction) + line("reserve_gib", habits.reserve_gib) +
         line("kv_of_bf16", format_name(habits.kv_of_bf16)) +
         line("kv_of_fp8", format_name(habits.kv_of_fp8)) +
         line("batch_limit", habits.batch_limit) + line("prefill_chunk", habits.prefill_chunk) +
         line("arrivals", kArrivalNames[habits.steady ? 1 : 0]) +
         line("burst_share", habits.burst_share) + line("wait_steps", habits.wait_steps) +
         line("first_token_steps", habits.first_token_steps);
}

}  // namespace

const EngineHabits& habits_of(const EngineProfile& engine, std::string_view version) {
  const EngineHabits* habits = &engine.habits;
  for (const auto& [since, changed] : engine.since)
    if (!older(version, since)) habits = &changed;
  return *habits;
}

NumberFormat default_kv(const EngineHabits& habits, NumberFormat weights) {
  return weights == NumberFormat::fp8 ? habits.kv_of_fp8 : habits.kv_of_bf16;
}

EngineProfile parse_engine_profile(std::string_view text, const std::string& where) {
  const YamlNode root = parse_yaml(text, where);
  const YamlValue map(root, where, "");
  constexpr std::string_view keys[] = {"version", "name", "source", "constants", "habits", "since"};
  map.keys(keys);
  map.at("version").only(1);
  EngineProfile engine;
  engine.name = map.at("name").text();
  engine.source = map.at("source").text();
  engine.constants = read_constants(map.at("constants"));
  engine.habits = read_habits(map.at("habits"), {}, kHabitKeys[0]);
  if (!map.has("since")) return engine;
  for (const YamlValue& entry : map.at("since").list(64)) {
    const EngineHabits& before = engine.since.empty() ? engine.habits : engine.since.back().second;
    const EngineHabits changed = read_habits(entry, before, "release");
    const std::string release = entry.at("release").text();
    if (!engine.since.empty() && !older(engine.since.back().first, release))
      throw entry.at("release").error(
          fmt::format("{} does not follow {}", release, engine.since.back().first));
    engine.since.emplace_back(release, changed);
  }
  return engine;
}

EngineProfile read_engine_profile(const std::string& path) {
  return parse_engine_profile(read_text(path, kMostYamlBytes), path);
}

EngineProfile find_engine_profile(const std::string& folder, const std::string& engine) {
  if (!is_folder(folder)) throw input_error("{}: no such folder of engine profiles", folder);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  if (std::find(names.begin(), names.end(), engine) != names.end())
    return read_engine_profile(folder + "/" + engine + ".yaml");
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw UnknownName(fmt::format("no profile of engine \"{}\"{}; {} has {}", engine,
                                did_you_mean(engine, known), folder, fmt::join(names, ", ")));
}

std::string to_yaml(const EngineProfile& engine) {
  std::string text = fmt::format("version: 1\nname: {}\nsource: {}\nconstants:\n",
                                 yaml_text(engine.name), yaml_text(engine.source));
  for (const ConstantField& constant : kConstantFields)
    text += fmt::format("  {}: {}\n", constant.key, engine.constants.*constant.field);
  text += "habits:\n" + habits_text(engine.habits, "  ");
  if (!engine.since.empty()) text += "since:\n";
  for (const auto& [release, habits] : engine.since)
    text += fmt::format("  - release: {}\n", yaml_text(release)) + habits_text(habits, "    ");
  return text;
}

}  // namespace weft::planner
