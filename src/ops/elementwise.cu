// An element a thread in steps of the grid; y may be x. 8 bytes a float32 element.
#include <algorithm>
#include <cmath>

#include "kernels/cuda_launch.cuh"
#include "ops/elementwise.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxBlocks = 1 << 14;

template <class T>
__device__ T evaluate(UnaryKind kind, T x, T constant) {
  switch (kind) {
    case UnaryKind::kNeg:
      return -x;
    case UnaryKind::kExp:
      return std::exp(x);
    case UnaryKind::kLog:
      return std::log(x);
    case UnaryKind::kSqrt:
      return std::sqrt(x);
    case UnaryKind::kRsqrt:
      return T{1} / std::sqrt(x);
    case UnaryKind::kSigmoid:
      return T{1} / (T{1} + std::exp(-x));
    case UnaryKind::kSilu:
      return x / (T{1} + std::exp(-x));
    case UnaryKind::kTanh:
      return std::tanh(x);
    case UnaryKind::kSquare:
      return x * x;
    case UnaryKind::kScale:
      return constant * x;
    case UnaryKind::kAddConstant:
      return x + constant;
  }
  return x;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    unary_kernel(UnaryKind kind, i64 count, T constant, const T* x, T* y) {
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<i64>(gridDim.x) * kThreads) {
    y[i] = evaluate(kind, x[i], constant);
  }
}

}  // namespace

void Unary::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  const i64 blocks = std::min(kMaxBlocks, ceil_div(count, kThreads));
  dispatch_float(context.output(0).type->dtype, [&]<class T>(T) {
    unary_kernel<<<kernels::blocks_for(blocks, 1), kThreads, 0, context.stream>>>(
        kind_, count, static_cast<T>(constant_), context.input(0).as<T>(), context.output(0).as<T>());
    WYCH_CUDA_LAUNCHED();
  });
}

}  // namespace wych::ops
