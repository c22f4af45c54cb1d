// The one binary: hands the arguments to a subcommand and turns errors into a line and a status.
#include "launch/bundled_mpi.h"
#include "launch/command_line.h"

int main(int argc, char** argv) {
  weft::launch::find_bundled_mpi();
  return weft::launch::run_command_line(argc, argv);
}
