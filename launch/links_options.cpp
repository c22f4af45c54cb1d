// Flags and their rules; nothing here measures.
#include "launch/links_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "kernels/link_pattern.h"
#include "launch/flag_words.h"
#include "launch/problems.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

constexpr std::string_view kDTypeNames[] = {"f32", "f16", "bf16"};
constexpr size_t kLeast = 8;
constexpr size_t kMostOnGpus = size_t{1} << 30;
constexpr size_t kMostOnCpus = size_t{16} << 20;
constexpr size_t kMostBytes = size_t{64} << 30;
// Of a decode step's sums, hidden 7168 in 16 bits: 1, 8, 32 and 128 tokens.
constexpr size_t kDecodeSums[] = {14 << 10, 112 << 10, 448 << 10, 1792 << 10};

bool shared_out(LinkTest test) {
  return test == LinkTest::all_gather || test == LinkTest::all_to_all;
}

CLI::Option* add_size(CLI::App& command, const std::string& flag, std::optional<size_t>& to,
                      const std::string& what) {
  return command
      .add_option_function<std::string>(
          flag, [flag, &to](const std::string& text) { to = parse_size(text, flag); }, what)
      ->type_name("SIZE");
}

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

void check_min(size_t min, const LinkPlan& plan, Problems& problems) {
  const size_t unit = plan.unit();
  if (min % unit == 0 && min > 0) return;
  const std::string what = shared_out(plan.test)
                               ? fmt::format("{} bytes: one {} for each of {} ranks", unit,
                                             dtype_name(plan.dtype), plan.n_ranks)
                               : fmt::format("{} bytes, one {}", unit, dtype_name(plan.dtype));
  problems.add(fmt::format("--min {} is not a multiple of {}; the next is {}", size_text(min), what,
                           size_text(round_up(std::max<size_t>(1, min), unit))));
}

std::vector<size_t> sizes_of(const LinkOptions& options, const LinkPlan& plan, bool on_gpu,
                             Problems& problems) {
  const size_t unit = plan.unit();
  const size_t min = options.min_bytes.value_or(round_up(kLeast, unit));
  const size_t max = options.max_bytes.value_or(std::max(min, on_gpu ? kMostOnGpus : kMostOnCpus));
  check_min(min, plan, problems);
  if (min > max) {
    problems.add(fmt::format("--min {} is more than --max {}", size_text(min), size_text(max)));
    return {min};
  }
  if (plan.test == LinkTest::p2p) {
    if (max % unit != 0)
      problems.add(fmt::format("--max {} is not a multiple of {} bytes, one {}", size_text(max),
                               unit, dtype_name(plan.dtype)));
    return min == max ? std::vector<size_t>{min} : std::vector<size_t>{min, max};
  }
  std::vector<size_t> sizes;
  for (size_t bytes = min; bytes > 0 && bytes <= max; bytes *= options.factor)
    sizes.push_back(bytes);
  if (sizes.empty()) sizes.push_back(unit);
  return sizes;
}

}  // namespace

std::string_view name_of(LinkTest test) { return kLinkTestNames[static_cast<size_t>(test)]; }

size_t parse_size(const std::string& text, const std::string& flag) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const size_t units = unit.empty() || unit == "B"  ? 1
                       : unit == "K" || unit == "k" ? size_t{1} << 10
                       : unit == "M"                ? size_t{1} << 20
                       : unit == "G"                ? size_t{1} << 30
                                                    : 0;
  if (failed != std::errc() || units == 0 || !(value >= 0))
    throw input_error("{} \"{}\" is no size: write bytes, or 64K, 16M, 1G", flag, text);
  const double bytes = value * static_cast<double>(units);
  if (bytes > static_cast<double>(kMostBytes))
    throw input_error("{} {} is more than {}", flag, text, size_text(kMostBytes));
  if (bytes != std::floor(bytes))
    throw input_error("{} {} is no whole number of bytes", flag, text);
  return static_cast<size_t>(bytes);
}

std::string size_text(size_t bytes) {
  constexpr std::string_view kUnits[] = {"", "K", "M", "G"};
  size_t unit = 0;
  while (unit < 3 && bytes > 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

size_t LinkPlan::unit() const {
  return dtype_bytes(dtype) * (shared_out(test) ? std::max<size_t>(1, n_ranks) : 1);
}

LinkPlan plan_links(const LinkOptions& options, size_t n_ranks, bool on_gpu) {
  Problems problems;
  LinkPlan plan;
  plan.test = options.test;
  plan.dtype = options.dtype;
  plan.n_ranks = n_ranks;
  plan.iterations = options.iterations;
  plan.seconds = options.seconds;
  plan.graph = options.graph;
  if (n_ranks < 2)
    problems.add(fmt::format(
        "--pattern {} goes between ranks, and there is one: start it under mpirun -n 2 or more",
        name_of(options.test)));
  if (kernels::pattern_mask(options.dtype, n_ranks) == 0)
    problems.add(fmt::format("sums of {} ranks are not exact in {}: give --dtype f32", n_ranks,
                             dtype_name(options.dtype)));
  if (options.graph && options.test != LinkTest::all_reduce)
    problems.add(
        fmt::format("--graph sets ways to sum side by side: give it with --pattern "
                    "all-reduce, not {}",
                    name_of(options.test)));
  if (options.graph && !options.min_bytes && !options.max_bytes)
    plan.sizes.assign(std::begin(kDecodeSums), std::end(kDecodeSums));
  else
    plan.sizes = sizes_of(options, plan, on_gpu, problems);
  problems.refuse("can't measure links");
  return plan;
}

// What is sent, what arrives, and on CPUs what a sum gathers.
size_t link_memory_bytes(const LinkPlan& plan, bool on_gpu) {
  const bool sums = plan.test == LinkTest::all_reduce;
  return plan.largest() * (sums && !on_gpu ? 3 : 2);
}

void add_link_options(CLI::App& command, LinkOptions& o) {
  command
      .add_option_function<std::string>(
          "--pattern",
          [&o](const std::string& text) {
            o.test = static_cast<LinkTest>(choose("--pattern", text, kLinkTestNames));
          },
          "p2p: every pair, one at a time (default); ring: each rank to the next, all at once; "
          "send-recv: neighbours exchange, as stages of a pipeline; all-reduce, all-gather, "
          "all-to-all")
      ->type_name("NAME");
  add_size(command, "--min", o.min_bytes,
           "The smallest message (default 8 bytes, or one element a rank); p2p: for latency");
  add_size(command, "--max", o.max_bytes,
           "The largest (default 1G on GPUs, 16M on CPUs); p2p: for rates");
  command.add_option("--factor", o.factor, "From one size to the next")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  command.add_option("--iterations", o.iterations, "Calls timed a size, at most")
      ->check(CLI::Range(1, 1'000'000'000))
      ->capture_default_str();
  command.add_option("--seconds", o.seconds, "That a size is timed, at most")
      ->check(CLI::Range(1e-3, 1e6))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--dtype",
          [&o](const std::string& text) {
            o.dtype = dtype_from_name(kDTypeNames[choose("--dtype", text, kDTypeNames)]);
          },
          "Elements: f32 (default), f16 or bf16")
      ->type_name("TYPE");
  command.add_flag("--graph", o.graph,
                   "all-reduce: peer memory beside NCCL, replayed as a graph; by default at a "
                   "decode step's sizes, 14K, 112K, 448K and 1792K");
  command.add_flag("--json", o.json, "One JSON object");
  command.add_option("--html", o.html, "Also a page with matrix and charts")->type_name("FILE");
  command.add_option("--configs", o.configs, "Folder of the shipped profiles");
  command.add_flag("!--no-bind", o.bind, "Leave ranks on the CPUs where they were put");
  command.add_flag("-v,--verbose", o.verbose, "Log more, on every rank");
  add_device_options(command, o.device);
}

}  // namespace weft::launch
