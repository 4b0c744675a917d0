// The library thinks in columns: a row-major C = op(A) op(B) is its C' = op(B)' op(A)'.
#include "device/cuda_matmul.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include "base/check.h"
#include "base/cuda_target.h"
#include "device/cuda.h"
#include "device/cuda_check.h"

namespace wych::device {
namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("{} failed: {}", call, cublasLtGetStatusString(status)));
  }
}
#define WYCH_CUBLAS_CALL(call) check((call), #call)

cudaDataType_t type_of(DType dtype) {
  WYCH_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "a product in {}", dtype_name(dtype));
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

// A matrix as it lies in memory, [rows, columns] row-major: for the library `columns` x `rows`.
cublasLtMatrixLayout_t layout_of(DType dtype, i64 rows, i64 columns, i64 leading) {
  cublasLtMatrixLayout_t layout = nullptr;
  WYCH_CUBLAS_CALL(cublasLtMatrixLayoutCreate(&layout, type_of(dtype), static_cast<u64>(columns),
                                              static_cast<u64>(rows), leading));
  return layout;
}

}  // namespace

struct Matmul::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr;  // the library's: our B
  cublasLtMatrixLayout_t b = nullptr;  // our A
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  ~Plan() {
    cublasLtMatrixLayoutDestroy(c);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatmulDescDestroy(operation);
  }
};

Matmul::Matmul() {
  cublasLtHandle_t handle = nullptr;
  WYCH_CUBLAS_CALL(cublasLtCreate(&handle));
  handle_ = handle;
}

Matmul::~Matmul() {
  plans_.clear();
  cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_));
}

const Matmul::Plan& Matmul::plan(const MatmulShape& shape) {
  std::unique_ptr<Plan>& plan = plans_[shape];
  if (plan) {
    return *plan;
  }
  plan = std::make_unique<Plan>();
  WYCH_CUBLAS_CALL(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t first = shape.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = shape.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  WYCH_CUBLAS_CALL(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  WYCH_CUBLAS_CALL(
      cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  plan->a = shape.trans_b ? layout_of(DType::kBF16, shape.n, shape.k, shape.ldb)
                          : layout_of(DType::kBF16, shape.k, shape.n, shape.ldb);
  plan->b = shape.trans_a ? layout_of(DType::kBF16, shape.k, shape.m, shape.lda)
                          : layout_of(DType::kBF16, shape.m, shape.k, shape.lda);
  plan->c = layout_of(shape.out, shape.m, shape.n, shape.ldc);
  cublasLtMatmulPreference_t preference = nullptr;
  WYCH_CUBLAS_CALL(cublasLtMatmulPreferenceCreate(&preference));
  const u64 workspace = kMatmulWorkspaceBytes;
  // Sums split over blocks only where they are added in the output's precision in a fixed order.
  const u32 reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                       sizeof workspace);
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                       sizeof reductions);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(static_cast<cublasLtHandle_t>(handle_), plan->operation, plan->a,
                                     plan->b, plan->c, plan->c, preference, 1, &result, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    plans_.erase(shape);
    throw DeviceError(
        fmt::format("cuBLASLt has no algorithm for a product of {} x {} x {} (leading {}, {}, {})", shape.m,
                    shape.n, shape.k, shape.lda, shape.ldb, shape.ldc));
  }
  plan->algorithm = result.algo;
  return *plan;
}

void Matmul::multiply(CUstream_st* stream, const MatmulShape& shape, const void* a, const void* b, void* c,
                      std::byte* workspace) {
  if (shape.m == 0 || shape.n == 0) {
    return;
  }
  WYCH_CHECK(shape.k > 0, "a product over nothing");
  const Plan& plan = this->plan(shape);
  const float alpha = 1;
  const float beta = shape.accumulate ? 1 : 0;
  WYCH_CUBLAS_CALL(cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_), plan.operation, &alpha, b, plan.a,
                                  a, plan.b, &beta, c, plan.c, c, plan.c, &plan.algorithm, workspace,
                                  static_cast<std::size_t>(kMatmulWorkspaceBytes), stream));
}

}  // namespace wych::device
