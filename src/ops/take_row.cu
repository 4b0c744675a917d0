// A copy of one row whose number lies on the device; as many bytes as the row has, read and written.
#include "kernels/cuda_launch.cuh"
#include "ops/take_row.h"

namespace wych::ops {
namespace {

using kernels::device_cast;

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    take_row_kernel(i64 rows, i64 width, const T* __restrict__ x, const i32* __restrict__ index,
                    T* __restrict__ y) {
  const i64 row = *index;
  if (row < 0 || row >= rows) {
    __trap();
  }
  const i64 j = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (j < width) {
    y[j] = x[row * width + j];
  }
}

template <class T>
void launch(const ir::CudaContext& context) {
  const i64 width = context.input(0).dim(1);
  take_row_kernel<<<kernels::blocks_for(width, kThreads), kThreads, 0, context.stream>>>(
      context.input(0).dim(0), width, device_cast<const T>(context.input(0)), context.input(1).as<i32>(),
      device_cast<T>(context.output(0)));
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void TakeRow::launch_cuda(const ir::CudaContext& context) const {
  if (context.input(0).dim(1) == 0) {
    return;
  }
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) { launch<T>(context); });
}

}  // namespace wych::ops
