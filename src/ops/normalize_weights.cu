// One thread a row: a row is a handful of weights, whose lines the neighbours in a warp share. Sums are in
// the order of slots. 8 bytes an element; the gradient 12.
#include "kernels/cuda_launch.cuh"
#include "ops/normalize_weights.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;

constexpr int kThreads = 256;

__device__ float row_sum(const float* w, i64 k) {
  float sum = 0;
  for (i64 j = 0; j < k; ++j) {
    sum += w[j];
  }
  return sum;
}

// y may be w.
__global__ void __launch_bounds__(kThreads)
    normalize_weights_kernel(i64 tokens, i64 k, const float* w, float* y) {
  const i64 token = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (token >= tokens) {
    return;
  }
  const float sum = row_sum(w + token * k, k);
  for (i64 i = token * k; i < (token + 1) * k; ++i) {
    y[i] = sum == 0 ? 0.0F : w[i] / sum;
  }
}

// dw may be dy or w.
__global__ void __launch_bounds__(kThreads)
    normalize_weights_dx_kernel(i64 tokens, i64 k, const float* dy, const float* w, float* dw) {
  const i64 token = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (token >= tokens) {
    return;
  }
  const float sum = row_sum(w + token * k, k);
  float dot = 0;
  for (i64 i = token * k; i < (token + 1) * k; ++i) {
    dot = fmaf(dy[i], w[i], dot);
  }
  const float mean = dot / sum;  // sum_i dy_i y_i
  for (i64 i = token * k; i < (token + 1) * k; ++i) {
    dw[i] = sum == 0 ? 0.0F : (dy[i] - mean) / sum;
  }
}

}  // namespace

void NormalizeWeights::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  if (tokens == 0) {
    return;
  }
  normalize_weights_kernel<<<blocks_for(tokens, kThreads), kThreads, 0, context.stream>>>(
      tokens, context.input(0).dim(1), context.input(0).as<float>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

void NormalizeWeightsDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  if (tokens == 0) {
    return;
  }
  normalize_weights_dx_kernel<<<blocks_for(tokens, kThreads), kThreads, 0, context.stream>>>(
      tokens, context.input(0).dim(1), context.input(0).as<float>(), context.input(1).as<float>(),
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
