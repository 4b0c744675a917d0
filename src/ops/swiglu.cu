// One block a row. With offsets, the blocks of rows behind the last segment return at once: how many rows
// count is read on the device. Bytes of float32: 12 an element of a, the gradient 20.
#include "kernels/cuda_launch.cuh"
#include "ops/swiglu.h"

namespace wych::ops {
namespace {

using kernels::device_cast;
using kernels::load_float;
using kernels::store_float;

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// `used` points to the number of defined rows; null: all are.
template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(i64 width, const i32* __restrict__ used, const T* __restrict__ gu, T* __restrict__ a) {
  const i64 row = blockIdx.x;
  if (used != nullptr && row >= *used) {
    return;
  }
  const T* gate = gu + 2 * row * width;
  const T* up = gate + width;
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    const float g = load_float(gate + j);
    store_float(a + row * width + j, g * sigmoid(g) * load_float(up + j));
  }
}

// dgu may be gu: a thread reads its elements before it writes them.
template <class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_dx_kernel(i64 width, const i32* __restrict__ used, const T* __restrict__ da, const T* gu, T* dgu) {
  const i64 row = blockIdx.x;
  if (used != nullptr && row >= *used) {
    return;
  }
  const i64 gate = 2 * row * width;
  const i64 up = gate + width;
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    const float g = load_float(gu + gate + j);
    const float u = load_float(gu + up + j);
    const float s = sigmoid(g);
    const float d = load_float(da + row * width + j) * s;
    store_float(dgu + gate + j, d * u * (1.0F + g * (1.0F - s)));
    store_float(dgu + up + j, d * g);
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
  kernels::dispatch_cuda(context.output(0).type->dtype, [&]<class T>(T) {
    swiglu_kernel<<<kernels::blocks_for(rows, 1), kThreads, 0, context.stream>>>(
        context.output(0).dim(1), used_rows(context, 1), device_cast<const T>(context.input(0)),
        device_cast<T>(context.output(0)));
  });
  WYCH_CUDA_LAUNCHED();
}

void SwigluDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  kernels::dispatch_cuda(context.output(0).type->dtype, [&]<class T>(T) {
    swiglu_dx_kernel<<<kernels::blocks_for(rows, 1), kThreads, 0, context.stream>>>(
        context.input(0).dim(1), used_rows(context, 2), device_cast<const T>(context.input(0)),
        device_cast<const T>(context.input(1)), device_cast<T>(context.output(0)));
  });
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
