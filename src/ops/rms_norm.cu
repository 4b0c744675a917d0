// One block a row; a row is read twice, the second time from the cache. The weight's gradient sums over
// chunks of rows in two fixed steps: partial sums by chunk, then over chunks.
#include "kernels/cuda_launch.cuh"
#include "ops/rms_norm.h"

namespace wych::ops {
namespace {

using kernels::block_sum;
using kernels::blocks_for;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(i64 width, float eps, const float* __restrict__ x, const float* __restrict__ weight,
                    float* __restrict__ y, float* __restrict__ rstd) {
  __shared__ float scratch[kThreads / kernels::kWarp];
  const float* row = x + blockIdx.x * width;
  float squares = 0;
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    squares = fmaf(row[j], row[j], squares);
  }
  squares = block_sum<kThreads>(squares, scratch);
  const float scale = 1.0F / sqrtf(squares / static_cast<float>(width) + eps);
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    y[blockIdx.x * width + j] = row[j] * scale * weight[j];
  }
  if (threadIdx.x == 0) {
    rstd[blockIdx.x] = scale;
  }
}

// dx may be dy. dx = rstd (g - x rstd^2 mean(g x)), g = dy weight.
__global__ void __launch_bounds__(kThreads)
    rms_norm_dx_kernel(i64 width, const float* dy, const float* __restrict__ x,
                       const float* __restrict__ weight, const float* __restrict__ rstd, float* dx) {
  __shared__ float scratch[kThreads / kernels::kWarp];
  const i64 first = blockIdx.x * width;
  float dot = 0;
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    dot = fmaf(dy[first + j] * weight[j], x[first + j], dot);
  }
  dot = block_sum<kThreads>(dot, scratch);
  const float scale = rstd[blockIdx.x];
  const float mean = dot * scale * scale / static_cast<float>(width);
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    dx[first + j] = scale * (dy[first + j] * weight[j] - x[first + j] * mean);
  }
}

constexpr i64 kRowsPerChunk = RmsNormDw::kCudaRowsPerChunk;

__global__ void __launch_bounds__(kThreads)
    rms_norm_dw_partial_kernel(i64 rows, i64 width, const float* __restrict__ dy, const float* __restrict__ x,
                               const float* __restrict__ rstd, float* __restrict__ partial) {
  const i64 j = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= width) {
    return;
  }
  const i64 begin = static_cast<i64>(blockIdx.y) * kRowsPerChunk;
  const i64 end = begin + kRowsPerChunk < rows ? begin + kRowsPerChunk : rows;
  float sum = 0;
  for (i64 r = begin; r < end; ++r) {
    sum = fmaf(dy[r * width + j] * x[r * width + j], rstd[r], sum);
  }
  partial[blockIdx.y * width + j] = sum;
}

__global__ void __launch_bounds__(kThreads)
    rms_norm_dw_sum_kernel(i64 chunks, i64 width, const float* __restrict__ partial, bool accumulate,
                           float* __restrict__ dw) {
  const i64 j = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= width) {
    return;
  }
  float sum = 0;
  for (i64 chunk = 0; chunk < chunks; ++chunk) {
    sum += partial[chunk * width + j];
  }
  dw[j] = accumulate ? dw[j] + sum : sum;
}

}  // namespace

void RmsNorm::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  rms_norm_kernel<<<blocks_for(rows, 1), kThreads, 0, context.stream>>>(
      context.input(0).dim(1), static_cast<float>(eps_), context.input(0).as<float>(),
      context.input(1).as<float>(), context.output(0).as<float>(), context.output(1).as<float>());
  WYCH_CUDA_LAUNCHED();
}

void RmsNormDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  rms_norm_dx_kernel<<<blocks_for(rows, 1), kThreads, 0, context.stream>>>(
      context.input(0).dim(1), context.input(0).as<float>(), context.input(1).as<float>(),
      context.input(2).as<float>(), context.input(3).as<float>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

void RmsNormDw::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  const i64 width = context.input(0).dim(1);
  const i64 chunks = ceil_div(rows, kRowsPerChunk);
  auto* partial = reinterpret_cast<float*>(context.workspace);
  const unsigned columns = blocks_for(width, kThreads);
  if (chunks > 0) {
    rms_norm_dw_partial_kernel<<<dim3(columns, blocks_for(chunks, 1)), kThreads, 0, context.stream>>>(
        rows, width, context.input(0).as<float>(), context.input(1).as<float>(), context.input(2).as<float>(),
        partial);
    WYCH_CUDA_LAUNCHED();
  }
  rms_norm_dw_sum_kernel<<<columns, kThreads, 0, context.stream>>>(chunks, width, partial, context.accumulate,
                                                                   context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
