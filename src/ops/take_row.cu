// A copy of one row whose number lies on the device; 8 bytes a float32 column.
#include "kernels/cuda_launch.cuh"
#include "ops/take_row.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    take_row_kernel(i64 rows, i64 width, const float* __restrict__ x, const i32* __restrict__ index,
                    float* __restrict__ y) {
  const i64 row = *index;
  if (row < 0 || row >= rows) {
    __trap();
  }
  const i64 j = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (j < width) {
    y[j] = x[row * width + j];
  }
}

}  // namespace

void TakeRow::launch_cuda(const ir::CudaContext& context) const {
  const i64 width = context.input(0).dim(1);
  if (width == 0) {
    return;
  }
  take_row_kernel<<<kernels::blocks_for(width, kThreads), kThreads, 0, context.stream>>>(
      context.input(0).dim(0), width, context.input(0).as<float>(), context.input(1).as<i32>(),
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
