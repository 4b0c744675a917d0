// One warp a token. The log-sum-exp is in float32; its squares are summed in float64 over the warps of a
// chunk of kCudaTokensPerChunk tokens, then over chunks. 4 bytes a logit; the gradient 8.
#include "kernels/cuda_rows.cuh"
#include "ops/router_z_loss.h"

namespace wych::ops {
namespace {

using kernels::block_sum;
using kernels::blocks_for;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;

constexpr i64 kTokensPerChunk = RouterZLoss::kCudaTokensPerChunk;

// Of row[0, n), in every lane of a warp.
__device__ float log_sum_exp(const float* row, i64 n) {
  const float largest = kernels::warp_largest(row, n);
  return largest + logf(kernels::warp_exp_sum(row, n, largest));
}

__global__ void __launch_bounds__(kRowThreads)
    router_z_loss_partial_kernel(i64 tokens, i64 experts, const float* __restrict__ logits,
                                 double* __restrict__ partial) {
  __shared__ double scratch[kRowsPerBlock];
  const i64 begin = blockIdx.x * kTokensPerChunk;
  const i64 end = begin + kTokensPerChunk < tokens ? begin + kTokensPerChunk : tokens;
  double sum = 0;
  for (i64 token = begin + threadIdx.x / kWarp; token < end; token += kRowsPerBlock) {
    const float lse = log_sum_exp(logits + token * experts, experts);
    sum += static_cast<double>(lse * lse);
  }
  sum = block_sum<kRowThreads>(lane_index() == 0 ? sum : 0.0, scratch);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kRowThreads)
    router_z_loss_sum_kernel(i64 chunks, const double* __restrict__ partial,
                             const double* __restrict__ denominator, double* __restrict__ loss) {
  __shared__ double scratch[kRowsPerBlock];
  double sum = 0;
  for (i64 chunk = threadIdx.x; chunk < chunks; chunk += kRowThreads) {
    sum += partial[chunk];
  }
  sum = block_sum<kRowThreads>(sum, scratch);
  if (threadIdx.x == 0) {
    *loss = sum / *denominator;
  }
}

__global__ void __launch_bounds__(kRowThreads)
    router_z_loss_dlogits_kernel(i64 tokens, i64 experts, const double* __restrict__ dloss,
                                 const float* __restrict__ logits, const double* __restrict__ denominator,
                                 float* __restrict__ dlogits) {
  const i64 token = kernels::warp_row();
  if (token >= tokens) {
    return;
  }
  const auto factor = static_cast<float>(2 * *dloss / *denominator);
  const float* row = logits + token * experts;
  const float lse = log_sum_exp(row, experts);
  for (i64 expert = lane_index(); expert < experts; expert += kWarp) {
    dlogits[token * experts + expert] = factor * lse * expf(row[expert] - lse);
  }
}

}  // namespace

void RouterZLoss::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 chunks = ceil_div(tokens, kTokensPerChunk);
  auto* partial = reinterpret_cast<double*>(context.workspace);
  if (chunks > 0) {
    router_z_loss_partial_kernel<<<blocks_for(chunks, 1), kRowThreads, 0, context.stream>>>(
        tokens, context.input(0).dim(1), context.input(0).as<float>(), partial);
    WYCH_CUDA_LAUNCHED();
  }
  router_z_loss_sum_kernel<<<1, kRowThreads, 0, context.stream>>>(
      chunks, partial, context.input(1).as<double>(), context.output(0).as<double>());
  WYCH_CUDA_LAUNCHED();
}

void RouterZLossDlogits::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(1).dim(0);
  if (tokens == 0) {
    return;
  }
  router_z_loss_dlogits_kernel<<<blocks_for(tokens, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      tokens, context.input(1).dim(1), context.input(0).as<double>(), context.input(1).as<float>(),
      context.input(2).as<double>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
