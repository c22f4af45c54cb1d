// Products by cuBLASLt. Its matrices are column-major: y [tokens, n] is its [n, tokens], w its
// transposed [k, n], x its [k, tokens].
#include "kernels/gpu_cublas.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/cublas_lt.h"
#include "kernels/cuda_check.h"
#include "runtime/base/error.h"

namespace weft::kernels {

struct GpuProductPlan {
  const CublasLt* library;
  void* workspace;
  cublasLtMatmulAlgo_t algorithm;
};

namespace {

// What an algorithm is chosen for, but for the tokens.
struct ShapeKey {
  uint64_t n, k;
  uint32_t dtype, y_dtype, biased, adds;
  auto operator<=>(const ShapeKey&) const = default;
};

ShapeKey key_of(const GpuProduct& a) {
  return {a.n,
          a.k,
          static_cast<uint32_t>(a.x.dtype),
          static_cast<uint32_t>(a.y.dtype),
          a.bias && a.epilogue != GpuProduct::kPartial,
          a.epilogue == GpuProduct::kAddResidual};
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// One call's descriptors, on the stack.
struct Operation {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t w, x, y, c;

  Operation(const CublasLt& library, const GpuProduct& a) {
    check(library.init_operation(&product, sizeof product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescInit");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(library, CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (a.bias && a.epilogue != GpuProduct::kPartial) {
      WEFT_EXPECT(a.bias.dtype == a.x.dtype);
      set(library, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(library, CUBLASLT_MATMUL_DESC_BIAS_POINTER, a.bias.data);
      set(library, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(a.bias.dtype));
    }
    layout(library, w, a.w.dtype, a.k, a.n, a.k);
    layout(library, x, a.x.dtype, a.k, a.tokens, a.x_stride);
    layout(library, y, a.y.dtype, a.n, a.tokens, a.y_stride);
    layout(library, c, a.y.dtype, a.n, a.tokens, a.y_stride);
  }

 private:
  template <class V>
  void set(const CublasLt& library, cublasLtMatmulDescAttributes_t attribute, const V& value) {
    check(library.set_operation(&product, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  static void layout(const CublasLt& library, cublasLtMatrixLayoutOpaque_t& to, DType dtype,
                     size_t rows, size_t columns, size_t stride) {
    check(library.init_layout(&to, sizeof to, type_of(dtype), rows, columns,
                              static_cast<int64_t>(stride)),
          "cublasLtMatrixLayoutInit");
  }
};

std::vector<cublasLtMatmulAlgo_t> candidates(const CublasLt& library, Operation& operation,
                                             int most) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check(library.init_preference(&preference, sizeof preference), "cublasLtMatmulPreferenceInit");
  const uint64_t bytes = kCublasWorkspaceBytes;
  check(library.set_preference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                               sizeof bytes),
        "cublasLtMatmulPreferenceSetAttribute");
  // Others add parts of k in the output's dtype.
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  check(library.set_preference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                               sizeof schemes),
        "cublasLtMatmulPreferenceSetAttribute");
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int n = 0;
  check(library.heuristic(library.handle, &operation.product, &operation.w, &operation.x,
                          &operation.c, &operation.y, &preference, most, found.data(), &n),
        "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < n; ++i)
    if (found[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(found[static_cast<size_t>(i)].algo);
  return algorithms;
}

cublasStatus_t multiply(const GpuProductPlan& plan, Operation& operation,
                        const cublasLtMatmulAlgo_t& algorithm, const GpuProduct& a,
                        CudaStream stream) {
  const bool adds = a.epilogue == GpuProduct::kAddResidual;
  const float alpha = 1, beta = adds ? 1 : 0;
  return plan.library->matmul(
      plan.library->handle, &operation.product, &alpha, a.w.data, &operation.w, a.x.data,
      &operation.x, &beta, adds ? a.residual.data : a.y.data, &operation.c, a.y.data, &operation.y,
      &algorithm, plan.workspace, kCublasWorkspaceBytes, stream);
}

class Timer {
 public:
  Timer() {
    check(cudaEventCreate(&start_), "cudaEventCreate");
    check(cudaEventCreate(&stop_), "cudaEventCreate");
  }
  ~Timer() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Infinite where the algorithm fails.
  float ms(const GpuProductPlan& plan, Operation& operation, const cublasLtMatmulAlgo_t& algorithm,
           const GpuProduct& a, CudaStream stream) {
    float best = std::numeric_limits<float>::infinity();
    for (int i = 0; i < 6; ++i) {
      check(cudaEventRecord(start_, stream), "cudaEventRecord");
      if (multiply(plan, operation, algorithm, a, stream) != CUBLAS_STATUS_SUCCESS) return best;
      check(cudaEventRecord(stop_, stream), "cudaEventRecord");
      check(cudaEventSynchronize(stop_), "cudaEventSynchronize");
      float time = 0;
      check(cudaEventElapsedTime(&time, start_, stop_), "cudaEventElapsedTime");
      if (i > 0) best = std::min(best, time);  // the first one loads the kernel
    }
    return best;
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

constexpr char kMagic[8] = {'w', 'e', 'f', 't', 'l', 't', '0', '1'};

struct ChoiceHeader {
  char magic[8];
  uint64_t version, n;
};
struct Choice {
  ShapeKey shape;
  uint64_t tokens;
  cublasLtMatmulAlgo_t algorithm;
};

}  // namespace

struct CublasProducts::State {
  CublasLt library;
  void* workspace;
  std::map<std::pair<ShapeKey, uint64_t>, GpuProductPlan> plans;  // by shape and most tokens
};

CublasProducts::CublasProducts(void* workspace) : state_(std::make_unique<State>()) {
  state_->workspace = workspace;
}
CublasProducts::~CublasProducts() = default;
CublasProducts::CublasProducts(CublasProducts&&) noexcept = default;
CublasProducts& CublasProducts::operator=(CublasProducts&&) noexcept = default;

void CublasProducts::measure(const GpuProduct& a, CudaStream stream) {
  Operation operation(state_->library, a);
  GpuProductPlan plan{&state_->library, state_->workspace, {}};
  Timer timer;
  float best = std::numeric_limits<float>::infinity();
  for (const cublasLtMatmulAlgo_t& algorithm : candidates(state_->library, operation, 16)) {
    const float ms = timer.ms(plan, operation, algorithm, a, stream);
    if (ms >= best) continue;
    best = ms;
    plan.algorithm = algorithm;
  }
  if (best == std::numeric_limits<float>::infinity())
    throw run_error("cuBLASLt has no algorithm for a product of {} tokens, n {}, k {} in {}",
                    a.tokens, a.n, a.k, dtype_name(a.x.dtype));
  state_->plans[{key_of(a), a.tokens}] = plan;
}

const GpuProductPlan* CublasProducts::plan(const GpuProduct& a) const {
  const ShapeKey shape = key_of(a);
  auto found = state_->plans.lower_bound({shape, a.tokens});
  if (found != state_->plans.end() && found->first.first == shape) return &found->second;
  if (found == state_->plans.begin()) return nullptr;
  --found;  // more tokens than were measured: the most
  return found->first.first == shape ? &found->second : nullptr;
}

std::string CublasProducts::serialise() const {
  ChoiceHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = state_->library.version();
  header.n = state_->plans.size();
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  for (const auto& [key, plan] : state_->plans) {
    Choice choice{};
    choice.shape = key.first;
    choice.tokens = key.second;
    choice.algorithm = plan.algorithm;
    bytes.append(reinterpret_cast<const char*>(&choice), sizeof choice);
  }
  return bytes;
}

void CublasProducts::adopt(std::string_view bytes) {
  ChoiceHeader header{};
  if (bytes.size() < sizeof header) throw run_error("cuBLASLt choices of {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 ||
      (bytes.size() - sizeof header) / sizeof(Choice) != header.n)
    throw run_error("cuBLASLt choices are damaged: {} bytes", bytes.size());
  if (header.version != state_->library.version())
    throw run_error(
        "cuBLASLt is version {} here and {} on rank 0: its choices differ between versions; "
        "install the same cuBLAS on all hosts",
        state_->library.version(), header.version);
  for (uint64_t i = 0; i < header.n; ++i) {
    Choice choice{};
    std::memcpy(&choice, bytes.data() + sizeof header + i * sizeof choice, sizeof choice);
    state_->plans[{choice.shape, choice.tokens}] = {&state_->library, state_->workspace,
                                                    choice.algorithm};
  }
}

void gpu_product_cublas(const GpuProduct& a, CudaStream stream) {
  const GpuProductPlan& plan = *a.plan;
  Operation operation(*plan.library, a);
  // Chosen for another number of tokens: the library may have to choose again for this one.
  cublasLtMatmulAlgo_t algorithm = plan.algorithm;
  cublasLtMatmulHeuristicResult_t result;
  const cublasStatus_t status =
      plan.library->check_algorithm(plan.library->handle, &operation.product, &operation.w,
                                    &operation.x, &operation.c, &operation.y, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kCublasWorkspaceBytes) {
    const auto others = candidates(*plan.library, operation, 1);
    if (!others.empty()) algorithm = others.front();
  }
  check(multiply(plan, operation, algorithm, a, stream),
        fmt::format("cublasLtMatmul of {} tokens, n {}, k {}", a.tokens, a.n, a.k));
}

}  // namespace weft::kernels
