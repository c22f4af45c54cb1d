// Looks for the bundle's folder beside the MPI library that the loader chose.
#include "launch/bundled_mpi.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace weft::launch {

void find_bundled_mpi() {
  Dl_info library{};
  const void* function = dlsym(RTLD_DEFAULT, "MPI_Init_thread");
  if (function == nullptr || dladdr(function, &library) == 0) return;
  std::error_code failed;
  const auto file = std::filesystem::canonical(library.dli_fname, failed);
  const auto prefix = file.parent_path() / "weft-openmpi";
  if (failed || !std::filesystem::is_directory(prefix, failed)) return;
  // Ours, whatever the launcher's own Open MPI has put there.
  setenv("OPAL_PREFIX", prefix.c_str(), 1);
  // PMIx warns on every rank when its compressor's plugin, of use to large launches, is not there.
  setenv("PMIX_MCA_pcompress_base_silence_warning", "1", 1);
}

}  // namespace weft::launch
