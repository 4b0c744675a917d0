// y = a + b, an element a thread in steps of the grid; y may be a or b. 12 bytes a float32 element.
#include "ir/add.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "device/cuda_check.h"

namespace wych::ir {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 16;

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(i64 count, const T* a, const T* b, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    y[i] = a[i] + b[i];
  }
}

// Two elements a thread; the last one alone.
__global__ void __launch_bounds__(kThreads)
    add_bf16_kernel(i64 count, const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* y) {
  const i64 stride = static_cast<i64>(gridDim.x) * kThreads;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < (count + 1) / 2; i += stride) {
    if (2 * i + 1 < count) {
      const float2 left = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(a)[i]);
      const float2 right = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(b)[i]);
      reinterpret_cast<__nv_bfloat162*>(y)[i] = __floats2bfloat162_rn(left.x + right.x, left.y + right.y);
    } else {
      y[2 * i] = __float2bfloat16_rn(__bfloat162float(a[2 * i]) + __bfloat162float(b[2 * i]));
    }
  }
}

void launch_bf16(const CudaContext& context) {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, ceil_div(count, 2 * kThreads)));
  add_bf16_kernel<<<blocks, kThreads, 0, context.stream>>>(
      count, reinterpret_cast<const __nv_bfloat16*>(context.input(0).data),
      reinterpret_cast<const __nv_bfloat16*>(context.input(1).data),
      reinterpret_cast<__nv_bfloat16*>(context.output(0).data));
  WYCH_CUDA_LAUNCHED();
}

template <class T>
void launch(const CudaContext& context) {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, ceil_div(count, kThreads)));
  add_kernel<<<blocks, kThreads, 0, context.stream>>>(count, context.input(0).as<T>(),
                                                      context.input(1).as<T>(), context.output(0).as<T>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Add::launch_cuda(const CudaContext& context) const {
  switch (context.output(0).type->dtype) {
    case DType::kF32:
      return launch<float>(context);
    case DType::kF64:
      return launch<double>(context);
    case DType::kBF16:
      return launch_bf16(context);
    case DType::kI32:
      return launch<i32>(context);
    default:
      return launch<i64>(context);
  }
}

}  // namespace wych::ir
