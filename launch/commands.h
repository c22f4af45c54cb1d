// The subcommands: each adds itself to the application, and runs when it is the one that was given.
#pragma once

#include "runtime/base/error.h"

namespace CLI {
class App;
}

namespace weft::launch {

// A failure that another rank says: this one only ends with its status.
class SaidElsewhere : public Error {
 public:
  explicit SaidElsewhere(int status) : Error("said by rank 0", status) {}
};

void add_plan_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_check_command(CLI::App& app);
void add_synth_command(CLI::App& app);

}  // namespace weft::launch
