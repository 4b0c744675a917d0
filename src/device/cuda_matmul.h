// Dense matrix products in bfloat16 by cuBLASLt, with the workspace that the caller planned and with
// algorithms that give the same bits every time. Exists in builds with WYCH_CUDA.
#pragma once

#include <map>
#include <memory>

#include "base/dtype.h"
#include "base/types.h"

struct CUstream_st;

namespace wych::device {

// C[m, n] = (accumulate ? C : 0) + op(A) op(B), row-major, leading dimensions in elements; op(A)[m, k] is A
// or, if trans_a, the transpose of A[k, m], likewise op(B)[k, n]. A and B are bfloat16, sums float32, C is
// f32 or bf16.
struct MatmulShape {
  bool trans_a = false;
  bool trans_b = false;
  i64 m = 0;
  i64 n = 0;
  i64 k = 0;
  i64 lda = 0;
  i64 ldb = 0;
  i64 ldc = 0;
  bool accumulate = false;
  DType out = DType::kBF16;
  auto operator<=>(const MatmulShape&) const = default;
};

class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Queued on `stream`; `workspace` has kMatmulWorkspaceBytes (base/cuda_target.h). The first product of a
  // shape asks the library for an algorithm, later ones reuse it. Empty extents write nothing. DeviceError
  // where the library refuses.
  void multiply(CUstream_st* stream, const MatmulShape& shape, const void* a, const void* b, void* c,
                std::byte* workspace);

 private:
  struct Plan;
  const Plan& plan(const MatmulShape& shape);
  void* handle_ = nullptr;
  std::map<MatmulShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace wych::device
