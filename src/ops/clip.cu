// An element a thread in steps of the grid; outputs may be inputs. Bytes of float32: clip 8 an element, its
// gradient 12.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "ops/clip.h"

namespace wych::ops {
namespace {

using kernels::device_cast;
using kernels::load_float;
using kernels::store_float;

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 16;

unsigned blocks_of(i64 count) {
  return static_cast<unsigned>(std::min(kMaxBlocks, ceil_div(count, kThreads)));
}

template <class T>
__global__ void __launch_bounds__(kThreads) clip_kernel(i64 count, float limit, const T* x, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const float value = load_float(x + i);
    const float below = value > limit ? limit : value;  // comparisons keep NaN
    store_float(y + i, below < -limit ? -limit : below);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    clip_dx_kernel(i64 count, float limit, const T* dy, const T* x, T* dx) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    const float value = load_float(x + i);
    store_float(dx + i, value <= limit && value >= -limit ? load_float(dy + i) : 0.0F);
  }
}

}  // namespace

void Clip::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  kernels::dispatch_cuda(context.output(0).type->dtype, [&]<class T>(T) {
    clip_kernel<<<blocks_of(count), kThreads, 0, context.stream>>>(count, static_cast<float>(limit_),
                                                                   device_cast<const T>(context.input(0)),
                                                                   device_cast<T>(context.output(0)));
  });
  WYCH_CUDA_LAUNCHED();
}

void ClipDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  kernels::dispatch_cuda(context.output(0).type->dtype, [&]<class T>(T) {
    clip_dx_kernel<<<blocks_of(count), kThreads, 0, context.stream>>>(
        count, static_cast<float>(limit_), device_cast<const T>(context.input(0)),
        device_cast<const T>(context.input(1)), device_cast<T>(context.output(0)));
  });
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
