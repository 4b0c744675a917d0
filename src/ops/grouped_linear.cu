#include "kernels/cuda_gemm.h"
#include "kernels/cuda_launch.cuh"
#include "ops/grouped_linear.h"

namespace wych::ops {

void GroupedLinear::launch_cuda(const ir::CudaContext& context) const {
  const i64 experts = context.input(1).dim(0);
  const i64 n = context.input(1).dim(1);
  const i64 k = context.input(1).dim(2);
  kernels::cuda_grouped_gemm_f32(context.stream, true, experts, context.input(2).as<i32>(),
                                 context.input(0).dim(0), n, k, context.input(0).as<float>(),
                                 context.input(1).as<float>(), context.output(0).as<float>());
}

void GroupedLinearDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 experts = context.input(1).dim(0);
  const i64 n = context.input(1).dim(1);
  const i64 k = context.input(1).dim(2);
  kernels::cuda_grouped_gemm_f32(context.stream, false, experts, context.input(2).as<i32>(),
                                 context.input(0).dim(0), k, n, context.input(0).as<float>(),
                                 context.input(1).as<float>(), context.output(0).as<float>());
}

void GroupedLinearDw::launch_cuda(const ir::CudaContext& context) const {
  kernels::cuda_grouped_dw_f32(context.stream, context.output(0).dim(0), context.input(2).as<i32>(),
                               context.input(0).dim(1), context.input(1).dim(1), context.input(0).as<float>(),
                               context.input(1).as<float>(), context.accumulate,
                               context.output(0).as<float>());
}

}  // namespace wych::ops
