// One warp a row. Bytes of bfloat16: 6 an element of a, the gradient 10.
#include "kernels/cuda_gated.cuh"
#include "ops/swiglu.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::device_cast;
using kernels::kPackWidth;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;

template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads)
    swiglu_kernel(i64 rows, int width, const T* __restrict__ gu, T* __restrict__ a) {
  const i64 row = kernels::warp_row();
  if (row < rows) {
    kernels::gated_row<T, kWidth>(width, gu + 2 * row * width, 1.0F, a + row * width);
  }
}

// dgu may be gu.
template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads)
    swiglu_dx_kernel(i64 rows, int width, const T* __restrict__ da, const T* gu, T* dgu) {
  const i64 row = kernels::warp_row();
  if (row < rows) {
    const i64 first = 2 * row * width;
    kernels::gated_row_dx<T, kWidth>(width, da + row * width, gu + first, 1.0F, dgu + first);
  }
}

}  // namespace

void Swiglu::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.output(0).dim(0);
  const i64 width = context.output(0).dim(1);
  const unsigned blocks = blocks_for(rows, kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  kernels::dispatch_cuda(context.output(0).type->dtype, [&]<class T>(T) {
    const T* gu = device_cast<const T>(context.input(0));
    T* a = device_cast<T>(context.output(0));
    const auto columns = static_cast<int>(width);
    if (kernels::are_packs<T>(width, {gu, a})) {
      swiglu_kernel<T, kPackWidth<T>><<<blocks, kRowThreads, 0, context.stream>>>(rows, columns, gu, a);
    } else {
      swiglu_kernel<T, 1><<<blocks, kRowThreads, 0, context.stream>>>(rows, columns, gu, a);
    }
  });
  WYCH_CUDA_LAUNCHED();
}

void SwigluDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 width = context.input(0).dim(1);
  const unsigned blocks = blocks_for(rows, kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const T* da = device_cast<const T>(context.input(0));
    const T* gu = device_cast<const T>(context.input(1));
    T* dgu = device_cast<T>(context.output(0));
    const auto columns = static_cast<int>(width);
    if (kernels::are_packs<T>(width, {da, gu, dgu})) {
      swiglu_dx_kernel<T, kPackWidth<T>>
          <<<blocks, kRowThreads, 0, context.stream>>>(rows, columns, da, gu, dgu);
    } else {
      swiglu_dx_kernel<T, 1><<<blocks, kRowThreads, 0, context.stream>>>(rows, columns, da, gu, dgu);
    }
  });
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
