// Opens cuBLASLt.
#include "kernels/cublas_lt.h"

#include <dlfcn.h>

#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

const char* text_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "not initialised";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "out of memory";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "invalid value";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "this GPU lacks a feature";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "execution failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    default:
      return "failed";
  }
}

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) throw run_error("libcublasLt lacks {}: weft needs cuBLAS 13", name);
}

}  // namespace

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw run_error("{}: {} (cuBLAS status {})", what, text_of(status), static_cast<int>(status));
}

CublasLt::CublasLt() {
  static_assert(CUBLAS_VER_MAJOR == 13, "name the library of this toolkit below");
  library_ = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  if (!library_)
    throw run_error(
        "cannot open libcublasLt.so.13 ({}); install cuBLAS 13 or put its folder into "
        "LD_LIBRARY_PATH",
        dlerror());
  decltype(&cublasLtCreate) create = nullptr;
  find(library_, "cublasLtCreate", create);
  find(library_, "cublasLtGetVersion", version);
  find(library_, "cublasLtMatmul", matmul);
  find(library_, "cublasLtMatmulAlgoGetHeuristic", heuristic);
  find(library_, "cublasLtMatmulAlgoCheck", check_algorithm);
  find(library_, "cublasLtMatmulDescInit_internal", init_operation);
  find(library_, "cublasLtMatmulDescSetAttribute", set_operation);
  find(library_, "cublasLtMatrixLayoutInit_internal", init_layout);
  find(library_, "cublasLtMatmulPreferenceInit_internal", init_preference);
  find(library_, "cublasLtMatmulPreferenceSetAttribute", set_preference);
  check(create(&handle), "cublasLtCreate");
}

// The library stays loaded: it holds work on the GPU that may outlive this.
CublasLt::~CublasLt() {
  const auto destroy =
      reinterpret_cast<decltype(&cublasLtDestroy)>(dlsym(library_, "cublasLtDestroy"));
  if (destroy && handle) destroy(handle);
}

}  // namespace weft::kernels
