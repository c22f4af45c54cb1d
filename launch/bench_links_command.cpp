// `weft bench links`: what the ways between ranks carry, on GPUs and, with the same definitions, by
// MPI between CPU ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>

#include "kernels/gpu_device.h"
#include "launch/bench_command.h"
#include "launch/config_folder.h"
#include "launch/links_pairs.h"
#include "launch/links_report.h"
#include "launch/links_rig.h"
#include "launch/links_sums.h"
#include "launch/links_sweep.h"
#include "launch/plan_options.h"
#include "launch/rank_process.h"
#include "parallel/fixed_text.h"
#include "parallel/gather.h"
#include "parallel/gpu_distance.h"
#include "parallel/topology_sources.h"
#include "planner/catalog.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

constexpr std::string_view kBetweenHosts = "between hosts";
constexpr std::string_view kMemory = "memory of a host";

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// Where ranks are and what is between them. Each rank knows its own host's devices.
class Places {
 public:
  Places(const parallel::MpiSession& session, const parallel::Binding& binding,
         const Device& device)
      : session_(session) {
    if (device.gpu) {
      topology_ = binding.topology.gpus.empty() ? parallel::live_topology(parallel::Devices::yes)
                                                : binding.topology;
      mine_.bus.set(device.name.substr(4));  // after "GPU "
    }
    mine_.host.set(host_name());
    all_ = parallel::gather(session, mine_);
  }

  std::string text(size_t rank) const {
    const std::string bus = all_[rank].bus.get();
    return all_[rank].host.get() + (bus.empty() ? "" : ", GPU " + bus);
  }

  // [n * n] on every rank.
  std::vector<std::string> ways() const {
    const auto n = static_cast<size_t>(session_.size());
    std::vector<parallel::FixedText<32>> row(n), matrix(n * n);
    for (size_t to = 0; to < n; ++to) row[to].set(way_to(to));
    parallel::gather_bytes(session_, row.data(), matrix.data(), n * sizeof row[0]);
    std::vector<std::string> words;
    for (const auto& way : matrix) words.push_back(way.get());
    return words;
  }

 private:
  struct Place {
    parallel::FixedText<64> host;
    parallel::FixedText<32> bus;  // of the GPU; empty: none
  };

  std::optional<size_t> gpu_at(const std::string& bus) const {
    for (size_t i = 0; i < topology_.gpus.size(); ++i)
      if (topology_.gpus[i].bus_id == parallel::normal_bus_id(bus)) return i;
    return std::nullopt;
  }

  std::string way_to(size_t rank) const {
    if (session_.node_of()[rank] != session_.node()) return std::string(kBetweenHosts);
    const std::string here = mine_.bus.get(), there = all_[rank].bus.get();
    if (here.empty()) return std::string(kMemory);
    if (here == there) return "the same GPU";
    const std::optional<size_t> a = gpu_at(here), b = gpu_at(there);
    return a && b ? parallel::way_between(topology_, *a, *b) : "unknown";
  }

  const parallel::MpiSession& session_;
  parallel::Topology topology_;
  Place mine_;
  std::vector<Place> all_;
};

// One direction of one GPU, where NVLink joins all of them.
std::optional<RateName> sheet_rate(const LinkReport& report, const Device& device,
                                   const std::string& configs) {
  for (size_t from = 0; from < report.n_ranks; ++from)
    for (size_t to = 0; to < report.n_ranks; ++to)
      if (from != to && !report.ways_between[from * report.n_ranks + to].starts_with("NVLink"))
        return std::nullopt;
  std::string name = device.product;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.starts_with("nvidia ")) name = name.substr(7);
  try {
    const double gbps = planner::Catalog(config_folder(configs)).machine(name).rates.nvlink_gbps;
    return RateName{gbps, device.product + "'s NVLinks, one direction"};
  } catch (const planner::UnknownName&) {
    return std::nullopt;
  }
}

LinkReport describe(const parallel::MpiSession& session, const parallel::Binding& binding,
                    const Device& device, const LinkOptions& options, const LinkPlan& plan) {
  LinkReport report;
  report.test = plan.test;
  report.dtype = plan.dtype;
  report.graph = plan.graph;
  report.bound = options.bind;
  report.n_ranks = plan.n_ranks;
  report.host_of = session.node_of();
  report.n_hosts =
      static_cast<size_t>(*std::max_element(report.host_of.begin(), report.host_of.end()) + 1);
  report.device = device.gpu ? device.product : device.name;
  report.latency_bytes = plan.sizes.front();
  report.rate_bytes = plan.sizes.back();
  const Places places(session, binding, device);
  for (size_t rank = 0; rank < plan.n_ranks; ++rank) report.places.push_back(places.text(rank));
  report.ways_between = places.ways();
  parallel::agree(session, [&] {
    if (device.gpu) report.sheet = sheet_rate(report, device, options.configs);
  });
  return report;
}

void check_memory(const parallel::MpiSession& session, const Device& device, const LinkPlan& plan) {
  const size_t needed = link_memory_bytes(plan, device.gpu.has_value());
  const size_t has = device.gpu ? gpu_rank_memory(session, device)
                                : machine_memory_bytes() / static_cast<size_t>(session.node_size());
  parallel::agree(session, [&] {
    if (needed > has)
      throw input_error("messages of {} take {} a rank, and there is {}: give a smaller --max",
                        size_text(plan.largest()), human_bytes(needed), human_bytes(has));
  });
}

// Measures, and prints each part as it is there.
class Bench {
 public:
  Bench(LinkRig& rig, LinkReport& report, bool prints)
      : rig_(rig), report_(report), prints_(prints) {}

  void pairs() {
    LinkPairs pairs(rig_);
    report_.no_copies = pairs.no_copies();
    say(head_text(report_));
    const std::vector<std::string> names = pairs.ways();
    for (size_t i = 0; i < names.size(); ++i) {
      report_.pairs.push_back(pairs.measure(i, report_.latency_bytes, report_.rate_bytes));
      say(way_text(report_, report_.pairs.back()));
    }
    report_.peak = fastest_pair(report_, report_.pairs);
    pairs.close();
  }

  void sweep() {
    find_peak();
    say(head_text(report_));
    for (const size_t bytes : rig_.plan().sizes) {
      report_.rows.push_back(measure_size(rig_, bytes));
      say(row_text(report_, report_.rows.back()));
    }
  }

  void sums(const parallel::MpiSession& session, const Device& device,
            const DeviceOptions& options) {
    LinkSums sums(rig_, session, device, options);
    report_.sum_ways = sums.ways();
    if (report_.sum_ways.empty())
      throw parallel::AgreedError("no way to sum in a graph here: " + sums.missing(), 1);
    if (!sums.missing().empty()) report_.transport += "; not measured: " + sums.missing();
    say(head_text(report_));
    for (const size_t bytes : rig_.plan().sizes) {
      report_.sums.push_back(sums.measure(bytes));
      say(row_text(report_, report_.sums.back()));
    }
    sums.close();
  }

 private:
  // Of messages as long as the sweep's longest.
  void find_peak() {
    LinkPairs pairs(rig_);
    report_.no_copies = pairs.no_copies();
    report_.peak = fastest_pair(report_, {pairs.measure_ring(report_.rate_bytes)});
    pairs.close();
  }

  void say(const std::string& text) const {
    if (!prints_) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  LinkRig& rig_;
  LinkReport& report_;
  bool prints_;
};

void finish(const LinkOptions& options, const LinkReport& report) {
  if (options.json)
    fmt::print("{}\n", links_json(report));
  else
    fmt::print("{}", tail_text(report));
  if (!options.html.empty()) write_file(options.html, links_html(report));
  if (std::fflush(stdout) != 0) throw run_error("cannot write to stdout");
  if (const size_t n = report.n_wrong(); n > 0)
    throw run_error("{} values came out wrong: see the table", n);
}

void bench(RankProcess& process, const LinkOptions& options) {
  const parallel::MpiSession& session = process.session;
  const bool leads = session.rank() == 0;
  const auto n_ranks = static_cast<size_t>(session.size());
  parallel::agree(session, [&] {
    plan_links(options, n_ranks, false);
    if (leads && !options.html.empty()) check_writable(options.html);
  });
  const Device device = choose_device(session, process.binding, options.device);
  LinkPlan plan;
  parallel::agree(session, [&] {
    plan = plan_links(options, n_ranks, device.gpu.has_value());
    if (device.gpu) kernels::select_gpu(*device.gpu);
  });
  check_memory(session, device, plan);
  LinkReport report = describe(session, process.binding, device, options, plan);
  LinkRig rig(session, device, options.device, plan);
  report.transport = rig.transport();
  report.no_wire = rig.no_wire();
  Bench bench(rig, report, leads && !options.json);
  if (plan.graph)
    bench.sums(session, device, options.device);
  else if (plan.test == LinkTest::p2p)
    bench.pairs();
  else
    bench.sweep();
  parallel::agree(session, [&] {
    if (leads) finish(options, report);
  });
  rig.close();
}

void run(const LinkOptions& options) {
  const RankOptions rank = {true,
                            {.bind = options.bind,
                             .use_gpus = may_use_gpus(options.device),
                             .share_gpus = options.device.share_gpus},
                            options.verbose};
  as_rank(rank, [&](RankProcess& process) {
    verify_binding(process.session, process.binding, {});
    bench(process, options);
  });
}

}  // namespace

void add_links_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "links", "Rates and latencies between ranks: pairs, rings, collectives; exact sums checked");
  const auto options = std::make_shared<LinkOptions>();  // shared with the parser until it has run
  add_link_options(*command, *options);
  command->callback([options] { run(*options); });
}

}  // namespace weft::launch
