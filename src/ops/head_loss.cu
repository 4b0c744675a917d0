// Chunks of rows: a product gives their logits in the workspace, one block a row turns them into losses and
// (backward) into gradients in place, and two products give dx and add to dweight. A row of logits is read
// twice and written once, 16 bytes a float32 logit with its making; losses are summed in double by one block
// in a fixed order at the end.
#include <algorithm>
#include <cfloat>

#include "kernels/cuda_gemm.h"
#include "kernels/cuda_launch.cuh"
#include "ops/count_targets.h"
#include "ops/head_loss.h"

namespace wych::ops {
namespace {

using kernels::kWarp;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kSumThreads = 1024;

// What a row of logits turns into. Row 0 of the chunk is token `first`.
struct RowParams {
  i64 first;
  i64 vocabulary;
  const i32* targets;
  const double* denominator;
  const double* d_ce;  // null: losses alone
  const double* d_z;
  float* logits;   // [chunk, vocabulary]
  double* losses;  // [tokens, ce and z]
};

struct SoftmaxSum {
  float largest;
  float sum;  // of exp(logit - largest)
};

struct RowShared {
  float largest[kWarps];
  float sums[kWarps];
};

// Of a whole row, in every thread. Every thread keeps the largest logit so far and the sum against it, so
// that the row is read once. The start is finite: minus infinity minus itself would be NaN.
__device__ SoftmaxSum reduce_row(const float* row, i64 vocabulary, RowShared& shared) {
  float largest = -FLT_MAX;
  float sum = 0;
  for (i64 v = threadIdx.x; v < vocabulary; v += kThreads) {
    const float logit = row[v];
    if (logit > largest) {
      sum *= expf(largest - logit);
      largest = logit;
    }
    sum += expf(logit - largest);  // NaN stays
  }
  float highest = kernels::warp_max(largest);
  if (threadIdx.x % kWarp == 0) {
    shared.largest[threadIdx.x / kWarp] = highest;
  }
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    highest = fmaxf(highest, shared.largest[warp]);
  }
  return {highest, kernels::block_sum<kThreads>(sum * expf(largest - highest), shared.sums)};
}

// The gradient of a row in place: d_ce (p - one_hot) + d_z 2 lse p.
__device__ void differentiate_row(const RowParams& params, const SoftmaxSum& softmax, float lse, i64 target,
                                  float* row) {
  const double d_ce = *params.d_ce / *params.denominator;
  const double d_z = *params.d_z / *params.denominator;
  const float factor = static_cast<float>(d_ce + 2 * d_z * static_cast<double>(lse)) / softmax.sum;
  for (i64 v = threadIdx.x; v < params.vocabulary; v += kThreads) {
    const float gradient = expf(row[v] - softmax.largest) * factor;
    row[v] = v == target ? gradient - static_cast<float>(d_ce) : gradient;
  }
}

__global__ void __launch_bounds__(kThreads) head_loss_row_kernel(const RowParams params) {
  __shared__ RowShared shared;
  const i64 token = params.first + blockIdx.x;
  float* row = params.logits + blockIdx.x * params.vocabulary;
  const i64 target = params.targets[token];
  if (target == kIgnoredTarget) {
    if (threadIdx.x == 0) {
      params.losses[2 * token] = 0;
      params.losses[2 * token + 1] = 0;
    }
    for (i64 v = threadIdx.x; params.d_ce != nullptr && v < params.vocabulary; v += kThreads) {
      row[v] = 0;
    }
    return;
  }
  if (target < 0 || target >= params.vocabulary) {
    __trap();
  }
  const float logit = row[target];  // before any thread writes: reduce_row waits for all
  const SoftmaxSum softmax = reduce_row(row, params.vocabulary, shared);
  const float lse = softmax.largest + logf(softmax.sum);
  if (threadIdx.x == 0) {
    params.losses[2 * token] = static_cast<double>(lse - logit);
    params.losses[2 * token + 1] = static_cast<double>(lse) * static_cast<double>(lse);
  }
  if (params.d_ce != nullptr) {
    differentiate_row(params, softmax, lse, target, row);
  }
}

__global__ void __launch_bounds__(kSumThreads)
    head_loss_sum_kernel(i64 tokens, const double* __restrict__ losses,
                         const double* __restrict__ denominator, double* __restrict__ ce_out,
                         double* __restrict__ z_out) {
  __shared__ double scratch[kSumThreads / kWarp];
  double ce = 0;
  double z = 0;
  for (i64 t = threadIdx.x; t < tokens; t += kSumThreads) {
    ce += losses[2 * t];
    z += losses[2 * t + 1];
  }
  ce = kernels::block_sum<kSumThreads>(ce, scratch);
  z = kernels::block_sum<kSumThreads>(z, scratch);
  if (threadIdx.x == 0) {
    *ce_out = ce / *denominator;
    *z_out = z / *denominator;
  }
}

// The inputs that both ops share.
struct Head {
  explicit Head(const ir::CudaContext& context, i64 num_words)
      : stream(context.stream),
        tokens(context.input(0).dim(0)),
        width(context.input(0).dim(1)),
        vocabulary(num_words),
        scratch(tokens, vocabulary),
        x(context.input(0).as<float>()),
        weight(context.input(1).as<float>()),
        logits(reinterpret_cast<float*>(context.workspace)),
        losses(reinterpret_cast<double*>(context.workspace + scratch.losses)) {}

  CUstream_st* stream;
  i64 tokens;
  i64 width;
  i64 vocabulary;
  HeadLossScratch scratch;
  const float* x;
  const float* weight;
  float* logits;
  double* losses;
};

// Calls after(begin, end) for every chunk of tokens, when its logits have become losses and gradients; then
// writes the sums. `row` lacks what differs between chunks.
template <class After>
void for_each_chunk(const ir::CudaContext& context, const Head& head, RowParams row, const After& after) {
  for (i64 begin = 0; begin < head.tokens; begin += head.scratch.chunk) {
    const i64 end = std::min(begin + head.scratch.chunk, head.tokens);
    kernels::cuda_gemm_f32(head.stream, false, true, end - begin, head.vocabulary, head.width,
                           head.x + begin * head.width, head.width, head.weight, head.width, false,
                           head.logits, head.vocabulary);
    row.first = begin;
    head_loss_row_kernel<<<kernels::blocks_for(end - begin, 1), kThreads, 0, head.stream>>>(row);
    WYCH_CUDA_LAUNCHED();
    after(begin, end);
  }
  head_loss_sum_kernel<<<1, kSumThreads, 0, head.stream>>>(head.tokens, head.losses, row.denominator,
                                                           context.output(0).as<double>(),
                                                           context.output(1).as<double>());
  WYCH_CUDA_LAUNCHED();
}

// Zeros in the rows of dweight to which no chunk adds: the padding, or all of them without tokens.
void clear_other_rows(const Head& head, i64 rows, float* dweight) {
  const i64 first = head.tokens == 0 ? 0 : head.vocabulary;
  const i64 count = (rows - first) * head.width;
  if (count > 0) {
    WYCH_CUDA_CALL(cudaMemsetAsync(dweight + first * head.width, 0,
                                   static_cast<std::size_t>(count) * sizeof(float), head.stream));
  }
}

}  // namespace

void HeadLoss::launch_cuda(const ir::CudaContext& context) const {
  const Head head(context, vocabulary_);
  const RowParams row{
      0,           vocabulary_, context.input(2).as<i32>(), context.input(3).as<double>(), nullptr, nullptr,
      head.logits, head.losses};
  for_each_chunk(context, head, row, [](i64, i64) {});
}

void HeadLossBackward::launch_cuda(const ir::CudaContext& context) const {
  const Head head(context, vocabulary_);
  const RowParams row{0,
                      vocabulary_,
                      context.input(2).as<i32>(),
                      context.input(3).as<double>(),
                      context.input(4).as<double>(),
                      context.input(5).as<double>(),
                      head.logits,
                      head.losses};
  float* dx = context.output(2).as<float>();
  float* dweight = context.output(3).as<float>();
  if (!context.accumulate) {
    clear_other_rows(head, context.output(3).dim(0), dweight);
  }
  for_each_chunk(context, head, row, [&](i64 begin, i64 end) {
    kernels::cuda_gemm_f32(head.stream, false, false, end - begin, head.width, vocabulary_, head.logits,
                           vocabulary_, head.weight, head.width, false, dx + begin * head.width, head.width);
    kernels::cuda_gemm_f32(head.stream, true, false, vocabulary_, head.width, end - begin, head.logits,
                           vocabulary_, head.x + begin * head.width, head.width,
                           context.accumulate || begin > 0, dweight, head.width);
  });
}

}  // namespace wych::ops
