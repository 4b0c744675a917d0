// An element a thread in steps of the grid; outputs may be inputs. Bytes of float32: clip 8 an element, its
// gradient 12.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "ops/clip.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 16;

unsigned blocks_of(i64 count) {
  return static_cast<unsigned>(std::min(kMaxBlocks, ceil_div(count, kThreads)));
}

__global__ void __launch_bounds__(kThreads) clip_kernel(i64 count, float limit, const float* x, float* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const float value = x[i] > limit ? limit : x[i];  // comparisons keep NaN
    y[i] = value < -limit ? -limit : value;
  }
}

__global__ void __launch_bounds__(kThreads)
    clip_dx_kernel(i64 count, float limit, const float* dy, const float* x, float* dx) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    dx[i] = x[i] <= limit && x[i] >= -limit ? dy[i] : 0.0F;
  }
}

}  // namespace

void Clip::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  clip_kernel<<<blocks_of(count), kThreads, 0, context.stream>>>(
      count, static_cast<float>(limit_), context.input(0).as<float>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

void ClipDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  clip_dx_kernel<<<blocks_of(count), kThreads, 0, context.stream>>>(
      count, static_cast<float>(limit_), context.input(0).as<float>(), context.input(1).as<float>(),
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
