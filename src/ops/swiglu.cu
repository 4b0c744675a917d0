// One block a row. With offsets, the blocks of rows behind the last segment return at once: how many rows
// count is read on the device. Bytes of float32: 12 an element of a, the gradient 20.
#include "kernels/cuda_launch.cuh"
#include "ops/swiglu.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// `used` points to the number of defined rows; null: all are.
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(i64 width, const i32* __restrict__ used, const float* __restrict__ gu,
                  float* __restrict__ a) {
  const i64 row = blockIdx.x;
  if (used != nullptr && row >= *used) {
    return;
  }
  const float* gate = gu + 2 * row * width;
  const float* up = gate + width;
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    a[row * width + j] = gate[j] * sigmoid(gate[j]) * up[j];
  }
}

// dgu may be gu: a thread reads its elements before it writes them.
__global__ void __launch_bounds__(kThreads)
    swiglu_dx_kernel(i64 width, const i32* __restrict__ used, const float* __restrict__ da, const float* gu,
                     float* dgu) {
  const i64 row = blockIdx.x;
  if (used != nullptr && row >= *used) {
    return;
  }
  const i64 gate = 2 * row * width;
  const i64 up = gate + width;
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    const float g = gu[gate + j];
    const float u = gu[up + j];
    const float s = sigmoid(g);
    const float d = da[row * width + j] * s;
    dgu[gate + j] = d * u * (1.0F + g * (1.0F - s));
    dgu[up + j] = d * g;
  }
}

// The last offset, if the op has that input.
const i32* used_rows(const ir::CudaContext& context, std::size_t offsets_input) {
  if (context.inputs.size() <= offsets_input) {
    return nullptr;
  }
  const ir::View& offsets = context.inputs[offsets_input];
  return offsets.as<i32>() + offsets.elements() - 1;
}

}  // namespace

void Swiglu::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.output(0).dim(0);
  if (rows == 0) {
    return;
  }
  swiglu_kernel<<<kernels::blocks_for(rows, 1), kThreads, 0, context.stream>>>(
      context.output(0).dim(1), used_rows(context, 1), context.input(0).as<float>(),
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

void SwigluDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  swiglu_dx_kernel<<<kernels::blocks_for(rows, 1), kThreads, 0, context.stream>>>(
      context.input(0).dim(1), used_rows(context, 2), context.input(0).as<float>(),
      context.input(1).as<float>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
