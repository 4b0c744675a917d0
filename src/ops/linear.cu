#include "kernels/cuda_gemm.h"
#include "kernels/cuda_launch.cuh"
#include "ops/linear.h"

namespace wych::ops {

void Linear::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 k = context.input(0).dim(1);
  const i64 n = context.input(1).dim(0);
  kernels::cuda_gemm_f32(context.stream, false, true, rows, n, k, context.input(0).as<float>(), k,
                         context.input(1).as<float>(), k, false, context.output(0).as<float>(), n);
}

void LinearDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 n = context.input(0).dim(1);
  const i64 k = context.input(1).dim(1);
  kernels::cuda_gemm_f32(context.stream, false, false, rows, k, n, context.input(0).as<float>(), n,
                         context.input(1).as<float>(), k, false, context.output(0).as<float>(), k);
}

void LinearDw::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 n = context.input(0).dim(1);
  const i64 k = context.input(1).dim(1);
  kernels::cuda_gemm_f32(context.stream, true, false, n, k, rows, context.input(0).as<float>(), n,
                         context.input(1).as<float>(), k, context.accumulate, context.output(0).as<float>(),
                         k);
}

}  // namespace wych::ops
