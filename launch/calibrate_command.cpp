// `weft bench calibrate`: times this machine's CPU ranks, alone or under mpirun, and writes the
// machine profile that `weft plan --machine-profile` takes.
#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "launch/bench_command.h"
#include "launch/calibrate_kernels.h"
#include "launch/calibrate_links.h"
#include "launch/calibrate_overheads.h"
#include "launch/failures.h"
#include "launch/run_options.h"
#include "parallel/binding.h"
#include "parallel/gather.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"

namespace weft::launch {
namespace {

using planner::MachineProfile;

constexpr size_t kMostTp = 8;  // that the heads of the small models divide by

struct CalibrateOptions {
  std::string output;
  std::string name = "cpu";
  size_t threads = 0;
  bool quick = false;
  bool bind = true;
  bool json = false;
  bool verbose = false;
};

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "an unknown processor";
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm date{};
  gmtime_r(&now, &date);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &date);
  return text;
}

// Ranks from 0 on that are on rank 0's host.
size_t first_host_ranks(const parallel::MpiSession& session) {
  const std::vector<int>& node_of = session.node_of();
  const auto other = std::find_if(node_of.begin(), node_of.end(),
                                  [&](int node) { return node != node_of.front(); });
  return static_cast<size_t>(other - node_of.begin());
}

class Calibration {
 public:
  Calibration(const parallel::MpiSession& session, const CalibrateOptions& options)
      : session_(session),
        options_(options),
        n_threads_(threads_of_rank(session, options.threads)),
        pool_(n_threads_),
        stream_(pool_) {
    profile_.name = options.name;
    const size_t host_ranks = first_host_ranks(session);
    for (size_t n = 1; n <= host_ranks; n *= 2) at_once_.push_back(n);
    memory_gib_ = static_cast<double>(machine_memory_bytes()) /
                  static_cast<double>(session.node_size()) / static_cast<double>(size_t{1} << 30);
  }

  // Every rank takes part; rank 0 has the profile. Steps that only some ranks run are agreed on.
  const MachineProfile& run() {
    for (const size_t n : at_once_) parallel::agree(session_, [&] { time_kernels(n); });
    for (const size_t n : at_once_)
      if (n > 1) parallel::agree(session_, [&] { time_sums(n); });
    if (at_once_.size() > 1) profile_.send_recv_inside = {time_messages(1)};
    if (const std::optional<int> other = first_rank_elsewhere(session_))
      profile_.send_recv_across = {time_messages(*other)};
    const auto n_ranks = static_cast<size_t>(session_.size());
    for (size_t tp = 1; tp <= std::min(kMostTp, at_once_.back()); tp *= 2)
      if (n_ranks % tp == 0) time_whole_steps(tp);
    planner::round_numbers(profile_);
    return profile_;
  }

  size_t n_threads() const { return n_threads_; }
  std::string machine() const {
    const auto count = [](size_t n, std::string_view what) {
      return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
    };
    return fmt::format("{}, {} of {}", processor_name(),
                       count(static_cast<size_t>(session_.size()), "rank"),
                       count(n_threads_, "thread"));
  }

 private:
  bool takes_part(size_t n) const { return static_cast<size_t>(session_.rank()) < n; }
  std::string source(size_t n) const {
    return fmt::format("weft bench calibrate, {}: {}; {} at once", today(), machine(), n);
  }
  void say(std::string_view what, size_t n) const {
    if (session_.rank() == 0) spdlog::info("timing {}, {} at once", what, n);
  }

  void time_kernels(size_t n) {
    if (!takes_part(n)) return;
    Rig rig(session_, stream_, n, 0, options_.quick);
    MachineProfile here;  // what is timed of so many ranks
    here.name = profile_.name;
    say("products", n);
    const ProductTimes products = time_products(rig);
    here.products = {products.from_memory, products.from_cache};
    here.caches = {products.cache};
    here.rates = here.curve_rates = planner::rates_of(here.products.front(), memory_gib_);
    say("attention, layers and sampling", n);
    here.decode_attention = {time_decode_attention(rig)};
    here.prefill_attention = {time_prefill_attention(rig)};
    planner::OverheadCurve overheads;
    time_layers(rig, session_, here, overheads);
    time_sampling(rig, overheads);
    here.overheads = {overheads};
    rig.close();
    if (n == 1) profile_.rates = profile_.curve_rates = here.rates;
    const auto keep = [&](auto& from, auto& to) {
      for (auto& curve : from) {
        curve.ranks = n;
        curve.source = source(n);
        to.push_back(curve);
      }
    };
    keep(here.products, profile_.products);
    keep(here.caches, profile_.caches);
    keep(here.decode_attention, profile_.decode_attention);
    keep(here.prefill_attention, profile_.prefill_attention);
    keep(here.overheads, profile_.overheads);
  }

  void time_sums(size_t n) {
    if (!takes_part(n)) return;
    say("sums over ranks", n);
    constexpr size_t most_bytes = size_t{16} << 20;
    Rig rig(session_, stream_, n, most_bytes, options_.quick);
    planner::MessageCurve curve = time_all_reduce(rig);
    const double share = time_wait_share(rig, curve.microseconds.front());
    for (planner::OverheadCurve& other : profile_.overheads)
      if (other.ranks == n) other.wait_share = share;
    rig.close();
    curve.source = source(n) + ", each after 60 us of computing";
    profile_.all_reduce.push_back({"weft's host communicator", n, std::move(curve)});
  }

  planner::MessageCurve time_messages(int other) {
    say("messages between ranks", 2);
    planner::MessageCurve curve;
    parallel::agree(session_,
                    [&] { curve = time_send_recv(session_, other, stream_, options_.quick); });
    curve.source = source(2) + ", each after 400 us of waiting";
    return curve;
  }

  // A stage's step of tp ranks, and of numbers of ranks that no job of this size has.
  void time_whole_steps(size_t tp) {
    say("whole steps", tp);
    const StepTime time = time_steps(session_, tp, n_threads_, profile_, options_.quick);
    for (planner::OverheadCurve& curve : profile_.overheads)
      if (curve.ranks >= tp) curve.step_us = time.step_us();
    if (session_.rank() == 0)
      spdlog::info(
          "a token of a small model, {} ranks a stage: {:.0f} us, {:.0f} of them explained", tp,
          time.measured_us, time.explained_us);
  }

  const parallel::MpiSession& session_;
  const CalibrateOptions& options_;
  size_t n_threads_;
  kernels::ThreadPool pool_;
  kernels::Stream stream_;
  std::vector<size_t> at_once_;  // numbers of ranks: 1, 2, 4, … on the first host
  double memory_gib_ = 0;
  MachineProfile profile_;
};

void print_summary(const CalibrateOptions& options, const Calibration& calibration,
                   const MachineProfile& profile, double seconds) {
  if (options.json) {
    const nlohmann::ordered_json object = {{"profile", options.output},
                                           {"name", profile.name},
                                           {"machine", calibration.machine()},
                                           {"threads", calibration.n_threads()},
                                           {"memory_gbps", profile.rates.memory_gbps},
                                           {"bf16_tflops", profile.rates.bf16_tflops},
                                           {"seconds", seconds}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("{}: {}; a rank alone reads {:.1f} GB/s and computes {:.1f} GFLOP/s; took {:.0f} s\n",
             options.output, calibration.machine(), profile.rates.memory_gbps,
             1e3 * profile.rates.bf16_tflops, seconds);
}

void calibrate(const parallel::MpiSession& session, const CalibrateOptions& options) {
  parallel::agree(session, [&] {
    if (session.rank() == 0) check_writable(options.output);
  });
  const RigClock::time_point start = RigClock::now();
  Calibration calibration(session, options);
  const MachineProfile& profile = calibration.run();
  parallel::agree(session, [&] {
    if (session.rank() != 0) return;
    const std::string comment = fmt::format(
        "Measured by `weft bench calibrate` on {}: {}.\nGood for plans whose job has so many ranks "
        "on a host: their threads are those.",
        today(), calibration.machine());
    write_file(options.output, to_yaml(profile, comment));
    print_summary(options, calibration, profile, us_since(start) * 1e-6);
  });
}

void run(const CalibrateOptions& options) {
  parallel::Guardian guardian;  // none: nothing here outlives a failure that mpirun sees
  parallel::Binding binding = parallel::bind_early({.bind = options.bind});
  parallel::MpiSession session(nullptr, nullptr);
  start_logging(session.size() > 1 ? session.rank() : -1, options.verbose);
  try {
    verify_binding(session, binding, {});
    calibrate(session, options);
  } catch (const parallel::AgreedError& error) {
    say_and_close(session, error.what());
    throw AlreadySaid(error.status());
  } catch (const Error& error) {
    end_job(session, guardian, error.what(), error.status());
  } catch (const std::exception& error) {
    end_job(session, guardian, error.what(), 1);
  }
  session.close();
}

}  // namespace

void add_calibrate_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "calibrate",
      "Time this machine's CPU ranks, alone or under mpirun; write the profile that plans use");
  const auto options = std::make_shared<CalibrateOptions>();  // the callback keeps them
  command->add_option("-o,--output", options->output, "The profile to write")
      ->type_name("FILE")
      ->required();
  command->add_option("--name", options->name, "What cluster files call it (default cpu)")
      ->type_name("NAME");
  command
      ->add_option("--threads", options->threads,
                   "Threads of each rank (default: its share of cores)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--quick", options->quick, "A coarse grid, in seconds: to try it out");
  command->add_flag("!--no-bind", options->bind, "Leave ranks on the CPUs where they were put");
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("-v,--verbose", options->verbose, "Warnings of all ranks, and details");
  command->callback([options] { run(*options); });
}

}  // namespace weft::launch
