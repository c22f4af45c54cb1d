// `weft synth`: a Hugging Face folder of synthetic weights, for tests and for timing real shapes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/progress.h"
#include "runtime/base/text.h"
#include "runtime/hf_config.h"
#include "runtime/synth_folder.h"

namespace weft::launch {
namespace {

struct SynthOptions {
  std::string model;
  std::string to;
  uint64_t seed = 7;
  double most_shard_gib = 5;
  bool json = false;
};

void synth(const SynthOptions& options) {
  constexpr double kGib = 1073741824.0;
  if (!(options.most_shard_gib > 0 && options.most_shard_gib <= 1e6))
    throw input_error("--max-shard-gib {} is not a number above 0, up to 1e6",
                      options.most_shard_gib);
  runtime::SynthFolder folder;
  folder.spec = runtime::read_model(options.model);
  folder.seed = options.seed;
  folder.most_shard_bytes = static_cast<size_t>(options.most_shard_gib * kGib);
  if (is_folder(options.model)) folder.model_folder = options.model;
  kernels::ThreadPool pool(std::max(1u, std::thread::hardware_concurrency()));
  size_t written = 0;
  {
    Progress bar("writing");
    runtime::write_synth_folder(folder, options.to, pool, [&](size_t done, size_t total) {
      written = done;
      bar.show(done, total);
    });
  }
  if (options.json) {
    const nlohmann::ordered_json object = {{"folder", options.to},
                                           {"model", folder.spec.name},
                                           {"seed", options.seed},
                                           {"weights_bytes", written}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  spdlog::info("{}: {} of weights like {}, seed {}", options.to, human_bytes(written),
               folder.spec.name, options.seed);
}

}  // namespace

void add_synth_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("synth", "Write a Hugging Face folder of synthetic weights.");
  const auto options = std::make_shared<SynthOptions>();  // the callback keeps them
  command->add_option("--model", options->model, "Facts: a YAML file, or a Hugging Face folder")
      ->required();
  command->add_option("-o,--output", options->to, "The folder to write: new, or empty")->required();
  command
      ->add_option_function<std::string>(
          "--seed",
          [options = options.get()](const std::string& text) {
            options->seed = parse_count(text, "--seed", SIZE_MAX);
          },
          "Of the weights; the same seed, the same bits (default 7)")
      ->type_name("N");
  command->add_option("--max-shard-gib", options->most_shard_gib, "Largest file of weights")
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->callback([options] {
    if (works_here()) synth(*options);
  });
}

}  // namespace weft::launch
