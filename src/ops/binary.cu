// An element a thread in steps of the grid; y may be any of the inputs. 12 bytes a float32 element, 16 for a
// selection.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "ops/binary.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;

unsigned grid(i64 count) { return kernels::blocks_for(std::min(kMaxBlocks, ceil_div(count, kThreads)), 1); }

template <class T>
__device__ T evaluate(BinaryKind kind, T a, T b) {
  switch (kind) {
    case BinaryKind::kSub:
      return a - b;
    case BinaryKind::kMul:
      return a * b;
    case BinaryKind::kDiv:
      return a / b;
    case BinaryKind::kMaximum:
      return a >= b || a != a ? a : b;
    case BinaryKind::kGreater:
      return static_cast<T>(a > b);
    case BinaryKind::kGreaterEqual:
      return static_cast<T>(a >= b);
    case BinaryKind::kEqual:
      return static_cast<T>(a == b);
  }
  return a;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    binary_kernel(BinaryKind kind, i64 count, const T* a, const T* b, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    y[i] = evaluate(kind, a[i], b[i]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    select_kernel(i64 count, const T* mask, const T* a, const T* b, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    y[i] = mask[i] != T{0} ? a[i] : b[i];
  }
}

}  // namespace

void Binary::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    binary_kernel<<<grid(count), kThreads, 0, context.stream>>>(
        kind_, count, context.input(0).as<T>(), context.input(1).as<T>(), context.output(0).as<T>());
    WYCH_CUDA_LAUNCHED();
  });
}

void Select::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    select_kernel<<<grid(count), kThreads, 0, context.stream>>>(
        count, context.input(0).as<T>(), context.input(1).as<T>(), context.input(2).as<T>(),
        context.output(0).as<T>());
    WYCH_CUDA_LAUNCHED();
  });
}

}  // namespace wych::ops
