// A job whose rank 1 fails alone while the others wait for it: it must end, by rank 1's abort.
#include <cstdio>
#include <exception>

#include "parallel/mpi_session.h"
#include "runtime/base/error.h"

namespace {

void run(int argc, char** argv) {
  weft::parallel::MpiSession session(&argc, &argv);
  if (session.rank() == 1) throw weft::run_error("only here");
  int never = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  weft::parallel::check(MPI_Irecv(&never, 1, MPI_INT, 1, 0, session.world(), &request),
                        "MPI_Irecv");
  weft::parallel::wait_gently(&request);
  session.close();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  }
  return 0;
}
