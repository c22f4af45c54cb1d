// cuBLASLt, opened while running, so that weft starts on machines without it.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <string>

namespace weft::kernels {

// The functions that are used, by their own names and types.
class CublasLt {
 public:
  // Throws Error with the names tried, the loader's reason and what to do.
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) init_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;

 private:
  void* library_ = nullptr;
};

// Throws Error "cublasLtMatmul of …: not supported (15)".
void check(cublasStatus_t status, const std::string& what);

}  // namespace weft::kernels
