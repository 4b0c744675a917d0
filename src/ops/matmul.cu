// A launch a batch; float32 alone.
#include "kernels/cuda_gemm.h"
#include "kernels/cuda_launch.cuh"
#include "ops/matmul.h"

namespace wych::ops {

void Matmul::launch_cuda(const ir::CudaContext& context) const {
  const ir::Shape& shape_a = context.input(0).type->shape;
  const ir::TensorType& type_y = *context.output(0).type;
  WYCH_CHECK(type_y.dtype == DType::kF32, "no CUDA kernel for {}", dtype_name(type_y.dtype));
  const i64 m = type_y.shape[-2];
  const i64 n = type_y.shape[-1];
  const i64 k = shape_a[trans_a_ ? -2 : -1];
  const i64 num_batches = shape_a.rank() == 3 ? shape_a[0] : 1;
  const float* a = context.input(0).as<float>();
  const float* b = context.input(1).as<float>();
  float* y = context.output(0).as<float>();
  for (i64 batch = 0; batch < num_batches; ++batch) {
    kernels::cuda_gemm(context.stream, trans_a_, trans_b_, m, n, k, a + batch * m * k, trans_a_ ? m : k,
                       b + batch * k * n, trans_b_ ? k : n, false, y + batch * m * n, n);
  }
}

}  // namespace wych::ops
