// Two launches a tensor: float64 sums of kCudaChunk elements each into the workspace, then their sum in
// order. Reads every element once.
#include "kernels/cuda_launch.cuh"
#include "ops/sum_of_squares.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    sum_of_squares_partial_kernel(i64 count, const float* __restrict__ x, double* __restrict__ partial) {
  __shared__ double scratch[kThreads / kernels::kWarp];
  const i64 begin = static_cast<i64>(blockIdx.x) * SumOfSquares::kCudaChunk;
  const i64 end = begin + SumOfSquares::kCudaChunk < count ? begin + SumOfSquares::kCudaChunk : count;
  double sum = 0;
  for (i64 i = begin + threadIdx.x; i < end; i += kThreads) {
    const double value = x[i];
    sum = fma(value, value, sum);
  }
  sum = kernels::block_sum<kThreads>(sum, scratch);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    sum_of_squares_total_kernel(i64 chunks, const double* __restrict__ partial, double* __restrict__ total) {
  __shared__ double scratch[kThreads / kernels::kWarp];
  double sum = 0;
  for (i64 i = threadIdx.x; i < chunks; i += kThreads) {
    sum += partial[i];
  }
  sum = kernels::block_sum<kThreads>(sum, scratch);
  if (threadIdx.x == 0) {
    *total = sum;
  }
}

}  // namespace

void SumOfSquares::launch_cuda(const ir::CudaContext& context) const {
  auto* partial = reinterpret_cast<double*>(context.workspace);
  double* totals = context.output(0).as<double>();
  for (const ir::View& input : context.inputs) {
    const i64 chunks = ceil_div(input.elements(), kCudaChunk);
    if (chunks > 0) {
      sum_of_squares_partial_kernel<<<kernels::blocks_for(chunks, 1), kThreads, 0, context.stream>>>(
          input.elements(), input.as<float>(), partial);
      WYCH_CUDA_LAUNCHED();
    }
    sum_of_squares_total_kernel<<<1, kThreads, 0, context.stream>>>(chunks, partial, totals++);
    WYCH_CUDA_LAUNCHED();
    partial += chunks;
  }
}

}  // namespace wych::ops
