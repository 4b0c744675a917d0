// One warp a token; the products of a token's experts are summed in float32 by lane, everything else in
// float64: lanes and warps of a chunk of kCudaTokensPerChunk tokens, then the chunks. 4 bytes a probability;
// the gradient 4.
#include "kernels/cuda_rows.cuh"
#include "ops/balance_loss.h"

namespace wych::ops {
namespace {

using kernels::block_sum;
using kernels::blocks_for;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;

constexpr i64 kTokensPerChunk = BalanceLoss::kCudaTokensPerChunk;

__global__ void __launch_bounds__(kRowThreads)
    balance_loss_partial_kernel(i64 tokens, i64 tokens_per_group, i64 experts,
                                const float* __restrict__ probs, const float* __restrict__ f,
                                double* __restrict__ partial) {
  __shared__ double scratch[kRowsPerBlock];
  const i64 begin = blockIdx.x * kTokensPerChunk;
  const i64 end = begin + kTokensPerChunk < tokens ? begin + kTokensPerChunk : tokens;
  double sum = 0;
  for (i64 token = begin + threadIdx.x / kWarp; token < end; token += kRowsPerBlock) {
    const float* p = probs + token * experts;
    const float* fractions = f + token / tokens_per_group * experts;
    float dot = 0;
    for (i64 expert = lane_index(); expert < experts; expert += kWarp) {
      dot = fmaf(p[expert], fractions[expert], dot);
    }
    sum += static_cast<double>(dot);
  }
  sum = block_sum<kRowThreads>(sum, scratch);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
  }
}

__global__ void __launch_bounds__(kRowThreads)
    balance_loss_sum_kernel(i64 chunks, i64 tokens_per_group, double scale,
                            const double* __restrict__ partial, double* __restrict__ loss) {
  __shared__ double scratch[kRowsPerBlock];
  double sum = 0;
  for (i64 chunk = threadIdx.x; chunk < chunks; chunk += kRowThreads) {
    sum += partial[chunk];
  }
  sum = block_sum<kRowThreads>(sum, scratch);
  if (threadIdx.x == 0) {
    *loss = scale * sum / static_cast<double>(tokens_per_group);
  }
}

__global__ void __launch_bounds__(kRowThreads)
    balance_loss_dprobs_kernel(i64 tokens, i64 tokens_per_group, i64 experts, double scale,
                               const double* __restrict__ dloss, const float* __restrict__ f,
                               float* __restrict__ dprobs) {
  const i64 token = kernels::warp_row();
  if (token >= tokens) {
    return;
  }
  const auto factor = static_cast<float>(*dloss * scale / static_cast<double>(tokens_per_group));
  const float* from = f + token / tokens_per_group * experts;
  for (i64 expert = lane_index(); expert < experts; expert += kWarp) {
    dprobs[token * experts + expert] = factor * from[expert];
  }
}

}  // namespace

void BalanceLoss::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 tokens_per_group = tokens / context.input(1).dim(0);
  const i64 chunks = ceil_div(tokens, kTokensPerChunk);
  auto* partial = reinterpret_cast<double*>(context.workspace);
  balance_loss_partial_kernel<<<blocks_for(chunks, 1), kRowThreads, 0, context.stream>>>(
      tokens, tokens_per_group, context.input(0).dim(1), context.input(0).as<float>(),
      context.input(1).as<float>(), partial);
  WYCH_CUDA_LAUNCHED();
  balance_loss_sum_kernel<<<1, kRowThreads, 0, context.stream>>>(chunks, tokens_per_group, scale_, partial,
                                                                 context.output(0).as<double>());
  WYCH_CUDA_LAUNCHED();
}

void BalanceLossDprobs::launch_cuda(const ir::CudaContext& context) const {
  balance_loss_dprobs_kernel<<<blocks_for(tokens_, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      tokens_, tokens_ / context.input(1).dim(0), context.input(1).dim(1), scale_,
      context.input(0).as<double>(), context.input(1).as<float>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
