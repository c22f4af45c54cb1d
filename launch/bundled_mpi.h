// Inside a bundle Open MPI has moved with the binary, and must be told where its plugins are.
#pragma once

namespace weft::launch {

// Sets OPAL_PREFIX where the MPI library that was loaded is a bundle's own (scripts/bundle). A
// cluster's Open MPI, found through LD_LIBRARY_PATH, is left alone. To be called before MPI starts
// and before there are threads.
void find_bundled_mpi();

}  // namespace weft::launch
