// `weft bench`: one file a subcommand, each of which adds itself here.
#pragma once

namespace CLI {
class App;
}

namespace weft::launch {

void add_bench_step(CLI::App& bench);

}  // namespace weft::launch
