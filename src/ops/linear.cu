// float32: kernels/cuda_gemm.h. bfloat16: cuBLASLt, with the weight's gradient summed and kept in float32.
#include "device/cuda_matmul.h"
#include "kernels/cuda_gemm.h"
#include "kernels/cuda_launch.cuh"
#include "ops/linear.h"

namespace wych::ops {
namespace {

// C[m, n] (+)= op(A) op(B) with dense operands; input 0 is A, input 1 is B.
void multiply(const ir::CudaContext& context, bool trans_a, bool trans_b, i64 m, i64 n, i64 k) {
  const i64 lda = trans_a ? m : k;
  const i64 ldb = trans_b ? k : n;
  if (context.input(0).type->dtype == DType::kF32) {
    kernels::cuda_gemm(context.stream, trans_a, trans_b, m, n, k, context.input(0).as<float>(), lda,
                       context.input(1).as<float>(), ldb, context.accumulate, context.output(0).as<float>(),
                       n);
    return;
  }
  const device::MatmulShape shape{
      trans_a, trans_b, m, n, k, lda, ldb, n, context.accumulate, context.output(0).type->dtype};
  context.matmul->multiply(context.stream, shape, context.input(0).data, context.input(1).data,
                           context.output(0).data, context.workspace);
}

}  // namespace

void Linear::launch_cuda(const ir::CudaContext& context) const {
  multiply(context, false, true, context.input(0).dim(0), context.input(1).dim(0), context.input(0).dim(1));
}

void LinearDx::launch_cuda(const ir::CudaContext& context) const {
  multiply(context, false, false, context.input(0).dim(0), context.input(1).dim(1), context.input(0).dim(1));
}

void LinearDw::launch_cuda(const ir::CudaContext& context) const {
  multiply(context, true, false, context.input(0).dim(1), context.input(1).dim(1), context.input(0).dim(0));
}

}  // namespace wych::ops
