// One warp a row. Softmax reads a row three times, twice from the cache, and computes the exponentials twice
// rather than write them twice: 8 bytes an element of memory traffic; the gradient 12.
#include "kernels/cuda_rows.cuh"
#include "ops/softmax.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;

// y may be x: a lane writes only what it alone reads from there on.
__global__ void __launch_bounds__(kRowThreads) softmax_kernel(i64 rows, i64 n, const float* x, float* y) {
  const i64 row = kernels::warp_row();
  if (row >= rows) {
    return;
  }
  const float* from = x + row * n;
  const float largest = kernels::warp_largest(from, n);
  const float sum = kernels::warp_exp_sum(from, n, largest);
  for (i64 e = lane_index(); e < n; e += kWarp) {
    y[row * n + e] = expf(from[e] - largest) / sum;
  }
}

// dx may be dy or y.
__global__ void __launch_bounds__(kRowThreads)
    softmax_dx_kernel(i64 rows, i64 n, const float* dy, const float* y, float* dx) {
  const i64 row = kernels::warp_row();
  if (row >= rows) {
    return;
  }
  const i64 first = row * n;
  float mean = 0;
  for (i64 e = lane_index(); e < n; e += kWarp) {
    mean = fmaf(dy[first + e], y[first + e], mean);
  }
  mean = kernels::warp_sum(mean);
  for (i64 e = lane_index(); e < n; e += kWarp) {
    dx[first + e] = y[first + e] * (dy[first + e] - mean);
  }
}

}  // namespace

void Softmax::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  softmax_kernel<<<blocks_for(rows, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      rows, context.input(0).dim(1), context.input(0).as<float>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

void SoftmaxDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  softmax_dx_kernel<<<blocks_for(rows, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      rows, context.input(0).dim(1), context.input(0).as<float>(), context.input(1).as<float>(),
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
