// Machine profiles read from YAML: every size and time is checked, since files come from anywhere.
#include "planner/machine_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "planner/unknown_name.h"
#include "planner/yaml_reader.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

constexpr size_t kMostPoints = 4096;  // of one axis
constexpr size_t kMostShapes = 65536;
constexpr size_t kMostSize = size_t{1} << 40;
constexpr size_t kMostRanks = 4096;
constexpr std::string_view kProfileKeys[] = {
    "version",           "name",       "aliases",          "base",
    "other_chip",        "rates",      "products",         "decode_attention",
    "prefill_attention", "all_reduce", "send_recv_inside", "send_recv_across",
    "overheads",         "caches"};
constexpr std::string_view kRateKeys[] = {"memory_gib", "memory_gbps", "bf16_tflops", "fp8_tflops",
                                          "nvlink_gbps"};

double positive(const YamlValue& value) {
  const double number = value.number();
  if (number <= 0 || number > 1e15)
    throw value.error(fmt::format("{} is not above 0 (and at most 1e15)", number));
  return number;
}

double at_least_zero(const YamlValue& value) {
  const double number = value.number();
  if (number < 0 || number > 1e15)
    throw value.error(fmt::format("{} is not from 0 to 1e15", number));
  return number;
}

std::vector<size_t> ascending(const YamlValue& value) {
  std::vector<size_t> sizes;
  for (const YamlValue& item : value.list(kMostPoints)) {
    sizes.push_back(item.count(1, kMostSize));
    if (sizes.size() > 1 && sizes.back() <= sizes[sizes.size() - 2])
      throw item.error(
          fmt::format("{} does not ascend after {}", sizes.back(), sizes[sizes.size() - 2]));
  }
  if (sizes.empty()) throw value.error("has no sizes");
  return sizes;
}

std::vector<double> times_of(const YamlValue& value, size_t n) {
  std::vector<double> times;
  for (const YamlValue& item : value.list(kMostShapes)) times.push_back(positive(item));
  if (times.size() != n) throw value.error(fmt::format("has {} times, not {}", times.size(), n));
  return times;
}

GpuRates read_rates(const YamlValue& map) {
  map.keys(kRateKeys);
  GpuRates rates;
  rates.memory_gib = positive(map.at("memory_gib"));
  rates.memory_gbps = positive(map.at("memory_gbps"));
  rates.bf16_tflops = positive(map.at("bf16_tflops"));
  rates.fp8_tflops = map.has("fp8_tflops") ? positive(map.at("fp8_tflops")) : 0;
  rates.nvlink_gbps = map.has("nvlink_gbps") ? positive(map.at("nvlink_gbps")) : 0;
  return rates;
}

size_t ranks_of(const YamlValue& map) {
  return map.has("ranks") ? map.at("ranks").count(1, kMostRanks) : 1;
}

// One row for each pair of outputs and inputs, outputs first: the times at each of `tokens`.
ProductCurve read_products(const YamlValue& map) {
  constexpr std::string_view keys[] = {"format", "ranks",   "cached", "source",
                                       "tokens", "outputs", "inputs", "microseconds"};
  map.keys(keys);
  ProductCurve curve;
  curve.ranks = ranks_of(map);
  if (map.has("cached")) curve.cached = map.at("cached").flag();
  curve.format = static_cast<NumberFormat>(map.at("format").choice(kNumberFormatNames));
  curve.source = map.at("source").text();
  curve.tokens = ascending(map.at("tokens"));
  curve.outputs = ascending(map.at("outputs"));
  curve.inputs = ascending(map.at("inputs"));
  const YamlValue table = map.at("microseconds");
  const std::vector<YamlValue> rows = table.list(kMostShapes);
  if (rows.size() != curve.outputs.size() * curve.inputs.size())
    throw table.error(fmt::format("has {} rows, not {} outputs x {} inputs", rows.size(),
                                  curve.outputs.size(), curve.inputs.size()));
  for (const YamlValue& row : rows)
    for (const double time : times_of(row, curve.tokens.size())) curve.microseconds.push_back(time);
  return curve;
}

CacheCurve read_cache(const YamlValue& map) {
  constexpr std::string_view keys[] = {"ranks", "source", "mib", "missed"};
  map.keys(keys);
  CacheCurve curve;
  curve.ranks = ranks_of(map);
  curve.source = map.at("source").text();
  const auto ascends = [](std::vector<double>& to, const YamlValue& item, bool strictly) {
    const double value = strictly ? positive(item) : at_least_zero(item);
    if (!to.empty() && (value < to.back() || (strictly && value == to.back())))
      throw item.error(fmt::format("{} does not ascend after {}", value, to.back()));
    to.push_back(value);
  };
  for (const YamlValue& item : map.at("mib").list(kMostPoints)) ascends(curve.mib, item, true);
  const YamlValue shares = map.at("missed");
  for (const YamlValue& item : shares.list(kMostPoints)) {
    ascends(curve.missed, item, false);
    if (curve.missed.back() > 1)
      throw item.error(fmt::format("{} is no share from 0 to 1", curve.missed.back()));
  }
  if (curve.mib.empty() || curve.missed.size() != curve.mib.size())
    throw shares.error(
        fmt::format("has {} shares for {} sizes", curve.missed.size(), curve.mib.size()));
  return curve;
}

DecodeAttentionCurve read_decode_attention(const YamlValue& map) {
  constexpr std::string_view keys[] = {"kv",     "ranks",   "source",      "gbps",
                                       "tflops", "tile_us", "most_context"};
  map.keys(keys);
  DecodeAttentionCurve curve;
  curve.kv = static_cast<NumberFormat>(map.at("kv").choice(kNumberFormatNames));
  curve.ranks = ranks_of(map);
  curve.source = map.at("source").text();
  curve.gbps = positive(map.at("gbps"));
  if (map.has("tflops")) curve.tflops = positive(map.at("tflops"));
  curve.tile_us = at_least_zero(map.at("tile_us"));
  curve.most_context = map.at("most_context").count(1, kMostSize);
  return curve;
}

PrefillAttentionCurve read_prefill_attention(const YamlValue& map) {
  constexpr std::string_view keys[] = {"ranks", "source", "tflops", "half_tokens", "most_context"};
  map.keys(keys);
  return {ranks_of(map), map.at("source").text(), positive(map.at("tflops")),
          at_least_zero(map.at("half_tokens")), map.at("most_context").count(1, kMostSize)};
}

OverheadCurve read_overheads(const YamlValue& map) {
  constexpr std::string_view keys[] = {"ranks",     "source",    "step_us",     "layer_us",
                                       "pass_gbps", "sample_us", "sample_gbps", "wait_share"};
  map.keys(keys);
  OverheadCurve curve;
  curve.ranks = ranks_of(map);
  curve.source = map.at("source").text();
  curve.step_us = at_least_zero(map.at("step_us"));
  curve.layer_us = at_least_zero(map.at("layer_us"));
  curve.pass_gbps = positive(map.at("pass_gbps"));
  curve.sample_us = at_least_zero(map.at("sample_us"));
  curve.sample_gbps = positive(map.at("sample_gbps"));
  if (map.has("wait_share")) curve.wait_share = at_least_zero(map.at("wait_share"));
  return curve;
}

MessageCurve read_messages(const YamlValue& map) {
  MessageCurve curve;
  curve.source = map.at("source").text();
  curve.bytes = ascending(map.at("bytes"));
  curve.microseconds = times_of(map.at("microseconds"), curve.bytes.size());
  return curve;
}

AllReduceCurve read_all_reduce(const YamlValue& map) {
  constexpr std::string_view keys[] = {"implementation", "ranks", "source", "bytes",
                                       "microseconds"};
  map.keys(keys);
  return {map.at("implementation").text(), map.at("ranks").count(2, 4096), read_messages(map)};
}

MessageCurve read_send_recv(const YamlValue& map) {
  constexpr std::string_view keys[] = {"source", "bytes", "microseconds"};
  map.keys(keys);
  return read_messages(map);
}

template <class T, class Read>
std::vector<T> read_list(const YamlValue& map, std::string_view key, Read read) {
  std::vector<T> all;
  if (!map.has(key)) return all;
  for (const YamlValue& item : map.at(key).list(64)) all.push_back(read(item));
  return all;
}

// What the profile lacks comes from its base; an all-reduce is one implementation and rank count.
void take_from_base(MachineProfile& profile, const MachineProfile& base) {
  const auto take = [](auto& own, const auto& others) {
    if (own.empty()) own = others;
  };
  take(profile.products, base.products);
  take(profile.caches, base.caches);
  take(profile.decode_attention, base.decode_attention);
  take(profile.prefill_attention, base.prefill_attention);
  take(profile.send_recv_inside, base.send_recv_inside);
  take(profile.send_recv_across, base.send_recv_across);
  for (const AllReduceCurve& curve : base.all_reduce) {
    const bool own = std::any_of(
        profile.all_reduce.begin(), profile.all_reduce.end(), [&](const AllReduceCurve& mine) {
          return mine.ranks == curve.ranks && mine.implementation == curve.implementation;
        });
    if (!own) profile.all_reduce.push_back(curve);
  }
}

void check_complete(const MachineProfile& profile, const YamlValue& map) {
  const auto need = [&](bool there, std::string_view what) {
    if (!there) throw map.error(fmt::format("{} has no {}, nor has its base", profile.name, what));
  };
  need(!profile.products.empty() && profile.products.front().format == NumberFormat::bf16 &&
           !profile.products.front().cached,
       "products, bf16 from memory first");
  need(!profile.decode_attention.empty(), "decode_attention");
  need(!profile.prefill_attention.empty(), "prefill_attention");
}

MachineProfile parse_profile(std::string_view text, const std::string& where,
                             const std::string& folder, bool may_have_base) {
  const YamlNode root = parse_yaml(text, where);
  const YamlValue map(root, where, "");
  map.keys(kProfileKeys);
  map.at("version").only(1);
  MachineProfile profile;
  profile.name = map.at("name").text();
  if (map.has("aliases"))
    for (const YamlValue& alias : map.at("aliases").list(64))
      profile.aliases.push_back(alias.text());
  profile.rates = profile.curve_rates = read_rates(map.at("rates"));
  profile.products = read_list<ProductCurve>(map, "products", read_products);
  profile.caches = read_list<CacheCurve>(map, "caches", read_cache);
  profile.decode_attention =
      read_list<DecodeAttentionCurve>(map, "decode_attention", read_decode_attention);
  profile.prefill_attention =
      read_list<PrefillAttentionCurve>(map, "prefill_attention", read_prefill_attention);
  profile.all_reduce = read_list<AllReduceCurve>(map, "all_reduce", read_all_reduce);
  profile.send_recv_inside = read_list<MessageCurve>(map, "send_recv_inside", read_send_recv);
  profile.send_recv_across = read_list<MessageCurve>(map, "send_recv_across", read_send_recv);
  profile.overheads = read_list<OverheadCurve>(map, "overheads", read_overheads);
  if (map.has("base")) {
    if (!may_have_base) throw map.at("base").error("a base has no base of its own");
    if (!profile.products.empty() || !profile.decode_attention.empty() || !profile.caches.empty())
      throw map.at("base").error("products and attention are either the base's or its own");
    profile.base = map.at("base").text();
    if (profile.base.find('/') != std::string::npos)
      throw map.at("base").error("is a name in the same folder, not a path");
    const std::string path = folder + "/" + profile.base + ".yaml";
    const MachineProfile base = parse_profile(read_text(path, kMostYamlBytes), path, folder, false);
    profile.curve_rates = base.rates;
    take_from_base(profile, base);
  }
  if (map.has("other_chip")) profile.other_chip = map.at("other_chip").flag();
  if (profile.other_chip && profile.base.empty())
    throw map.at("other_chip").error("only a base can be of another chip");
  check_complete(profile, map);
  return profile;
}

}  // namespace

MachineProfile parse_machine_profile(std::string_view text, const std::string& where,
                                     const std::string& folder) {
  return parse_profile(text, where, folder, true);
}

MachineProfile read_machine_profile(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return parse_machine_profile(read_text(path, kMostYamlBytes), path,
                               folder.empty() ? "." : folder);
}

MachineProfile find_machine_profile(const std::string& folder, const std::string& gpu) {
  if (!is_folder(folder)) throw input_error("{}: no such folder of machine profiles", folder);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  const auto path = [&](const std::string& name) { return folder + "/" + name + ".yaml"; };
  if (std::find(names.begin(), names.end(), gpu) != names.end())
    return read_machine_profile(path(gpu));
  for (const std::string& name : names) {
    MachineProfile profile = read_machine_profile(path(name));
    if (std::find(profile.aliases.begin(), profile.aliases.end(), gpu) != profile.aliases.end())
      return profile;
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw UnknownName(fmt::format("no profile of GPU \"{}\"{}; {} has {}", gpu,
                                did_you_mean(gpu, known), folder, fmt::join(names, ", ")));
}

}  // namespace weft::planner
