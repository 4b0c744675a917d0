// One element a thread in steps of the grid.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "ops/fill.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;

template <class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(i64 count, T value, T* out) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    out[i] = value;
  }
}

template <class T>
void launch(const ir::CudaContext& context, double value) {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  const i64 blocks = std::min(kMaxBlocks, ceil_div(count, kThreads));
  fill_kernel<<<kernels::blocks_for(blocks, 1), kThreads, 0, context.stream>>>(count, static_cast<T>(value),
                                                                               context.output(0).as<T>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Fill::launch_cuda(const ir::CudaContext& context) const {
  switch (type_.dtype) {
    case DType::kF32:
      return launch<float>(context, value_);
    case DType::kF64:
      return launch<double>(context, value_);
    case DType::kI32:
      return launch<i32>(context, value_);
    default:
      return launch<i64>(context, value_);
  }
}

}  // namespace wych::ops
