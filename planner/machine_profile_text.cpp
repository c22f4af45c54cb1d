// Machine profiles written as YAML: what the reader reads back exactly.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/machine_profile.h"
#include "planner/yaml_reader.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

// Of curves that were measured on one rank alone nothing is said.
std::string ranks_text(size_t ranks) {
  return ranks == 1 ? "" : fmt::format("    ranks: {}  # of a node, at once\n", ranks);
}

// A list's entry begins with "  - ", its other lines with four spaces.
std::string entry(const std::string& lines) { return "  - " + lines.substr(4); }

std::string source_text(const std::string& source) {
  return fmt::format("    source: {}\n", yaml_text(source));
}

std::string messages_text(const MessageCurve& curve) {
  std::string text = source_text(curve.source);
  text += fmt::format("    bytes: [{}]\n", fmt::join(curve.bytes, ", "));
  return text + fmt::format("    microseconds: [{}]\n", fmt::join(curve.microseconds, ", "));
}

std::string text_of(const ProductCurve& curve) {
  std::string text = fmt::format("    format: {}\n", format_name(curve.format)) +
                     ranks_text(curve.ranks) + (curve.cached ? "    cached: true\n" : "") +
                     source_text(curve.source);
  text += fmt::format("    tokens: [{}]\n", fmt::join(curve.tokens, ", "));
  text += fmt::format("    outputs: [{}]\n", fmt::join(curve.outputs, ", "));
  text += fmt::format("    inputs: [{}]\n    microseconds:\n", fmt::join(curve.inputs, ", "));
  const size_t n = curve.tokens.size();
  for (size_t row = 0; row < curve.microseconds.size(); row += n) {
    const auto first = curve.microseconds.begin() + static_cast<std::ptrdiff_t>(row);
    text += fmt::format("      - [{}]\n", fmt::join(first, first + static_cast<long>(n), ", "));
  }
  return text;
}

std::string text_of(const CacheCurve& curve) {
  std::string text = source_text(curve.source) + ranks_text(curve.ranks);
  text += fmt::format("    mib: [{}]\n", fmt::join(curve.mib, ", "));
  return text + fmt::format("    missed: [{}]\n", fmt::join(curve.missed, ", "));
}

std::string text_of(const DecodeAttentionCurve& curve) {
  std::string text = fmt::format("    kv: {}\n", format_name(curve.kv)) + ranks_text(curve.ranks) +
                     source_text(curve.source);
  text += fmt::format("    gbps: {}\n", curve.gbps);
  if (curve.tflops > 0) text += fmt::format("    tflops: {}\n", curve.tflops);
  return text +
         fmt::format("    tile_us: {}\n    most_context: {}\n", curve.tile_us, curve.most_context);
}

std::string text_of(const PrefillAttentionCurve& curve) {
  return source_text(curve.source) + ranks_text(curve.ranks) +
         fmt::format("    tflops: {}\n    half_tokens: {}\n    most_context: {}\n", curve.tflops,
                     curve.half_tokens, curve.most_context);
}

std::string text_of(const AllReduceCurve& reduce) {
  return fmt::format("    implementation: {}\n    ranks: {}\n", yaml_text(reduce.implementation),
                     reduce.ranks) +
         messages_text(reduce.curve);
}

std::string text_of(const MessageCurve& curve) { return messages_text(curve); }

std::string text_of(const OverheadCurve& curve) {
  return source_text(curve.source) + ranks_text(curve.ranks) +
         fmt::format(
             "    step_us: {}\n    layer_us: {}\n    pass_gbps: {}\n    sample_us: {}\n"
             "    sample_gbps: {}\n",
             curve.step_us, curve.layer_us, curve.pass_gbps, curve.sample_us, curve.sample_gbps) +
         (curve.wait_share > 0 ? fmt::format("    wait_share: {}\n", curve.wait_share) : "");
}

template <class Curve>
std::string list_text(std::string_view key, const std::vector<Curve>& curves) {
  if (curves.empty()) return "";
  std::string text = fmt::format("{}:\n", key);
  for (const Curve& curve : curves) text += entry(text_of(curve));
  return text;
}

std::string rates_text(const GpuRates& rates) {
  std::string text = fmt::format("rates:\n  memory_gib: {}\n  memory_gbps: {}\n  bf16_tflops: {}\n",
                                 rates.memory_gib, rates.memory_gbps, rates.bf16_tflops);
  if (rates.fp8_tflops > 0) text += fmt::format("  fp8_tflops: {}\n", rates.fp8_tflops);
  if (rates.nvlink_gbps > 0) text += fmt::format("  nvlink_gbps: {}\n", rates.nvlink_gbps);
  return text;
}

}  // namespace

std::string to_yaml(const MachineProfile& profile, std::string_view comment) {
  WEFT_EXPECT(profile.base.empty());
  std::string text;
  for (const std::string& line : split(comment, '\n'))
    if (!line.empty()) text += "# " + line + "\n";
  text += fmt::format("version: 1\nname: {}\n", yaml_text(profile.name));
  std::vector<std::string> aliases;
  for (const std::string& alias : profile.aliases) aliases.push_back(yaml_text(alias));
  if (!aliases.empty()) text += fmt::format("aliases: [{}]\n", fmt::join(aliases, ", "));
  return text + rates_text(profile.rates) + list_text("products", profile.products) +
         list_text("caches", profile.caches) +
         list_text("decode_attention", profile.decode_attention) +
         list_text("prefill_attention", profile.prefill_attention) +
         list_text("all_reduce", profile.all_reduce) +
         list_text("send_recv_inside", profile.send_recv_inside) +
         list_text("send_recv_across", profile.send_recv_across) +
         list_text("overheads", profile.overheads);
}

}  // namespace weft::planner
