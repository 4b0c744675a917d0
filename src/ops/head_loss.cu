// Chunks of rows: a product gives their logits in the workspace, one block a row turns them into losses and
// (backward) into gradients in place, and two products give dx and add to dweight. Logits are float32 always;
// their gradients are of the type of x, bf16 in the first half of the row's bytes. A block is a whole
// multiprocessor's, so that the rows in work fit the second-level cache together and are read from memory
// once: 8 bytes a logit with its making, and 4 or 2 for the gradient. Losses are summed in double by one
// block in a fixed order at the end.
#include <algorithm>
#include <cfloat>
#include <type_traits>

#include "device/cuda_matmul.h"
#include "kernels/cuda_gemm.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_mma.cuh"
#include "ops/count_targets.h"
#include "ops/head_loss.h"

namespace wych::ops {
namespace {

using kernels::device_cast;
using kernels::kWarp;

constexpr int kThreads = 1024;
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

constexpr float kLog2E = 1.4426950408889634F;
constexpr int kUnroll = 4;  // vectors that a thread reads before it waits for one

// exp(x - largest). One rounding before the power: where the result counts for something, to 2^-22 of it.
__device__ float exp_below(float x, float scaled_largest) {
  return kernels::fast_exp2(fmaf(x, kLog2E, -scaled_largest));
}

// kWidth logits in one load. Rows start at multiples of kWidth elements.
template <int kWidth>
struct alignas(kWidth * sizeof(float)) Logits {
  float values[kWidth];
};

template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Gradients {
  T values[kWidth];
};

// Of a whole row, in every thread. Every thread keeps the largest logit so far and the sum against it, so
// that the row is read once. The start is finite: minus infinity minus itself would be NaN.
template <int kWidth>
__device__ SoftmaxSum reduce_row(const float* row, i64 vocabulary, RowShared& shared) {
  using Vector = Logits<kWidth>;
  const auto* vectors = reinterpret_cast<const Vector*>(row);
  const i64 count = vocabulary / kWidth;
  float largest = -FLT_MAX;
  float sum = 0;
  for (i64 first = threadIdx.x; first < count; first += kUnroll * kThreads) {
    Vector logits[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * kThreads < count) {
        logits[i] = vectors[first + i * kThreads];
      }
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * kThreads < count) {
        float highest = largest;
#pragma unroll
        for (float logit : logits[i].values) {
          highest = logit > highest ? logit : highest;
        }
        const float scaled = highest * kLog2E;
        sum *= exp_below(largest, scaled);
        largest = highest;
#pragma unroll
        for (float logit : logits[i].values) {
          sum += exp_below(logit, scaled);  // NaN stays
        }
      }
    }
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
  const float total = sum * exp_below(largest, highest * kLog2E);
  return {highest, kernels::block_sum<kThreads>(total, shared.sums)};
}

// The gradient of a row in place, as T: d_ce (p - one_hot) + d_z 2 lse p. Narrow gradients lie where logits
// were that other threads have read already: those of this step and of steps before.
template <class T, int kWidth>
__device__ void differentiate_row(const RowParams& params, const SoftmaxSum& softmax, float lse, i64 target,
                                  const float* row, T* gradients) {
  using Vector = Logits<kWidth>;
  const auto* vectors = reinterpret_cast<const Vector*>(row);
  auto* out = reinterpret_cast<Gradients<T, kWidth>*>(gradients);
  const i64 count = params.vocabulary / kWidth;
  const double d_ce = *params.d_ce / *params.denominator;
  const double d_z = *params.d_z / *params.denominator;
  const float factor = static_cast<float>(d_ce + 2 * d_z * static_cast<double>(lse)) / softmax.sum;
  const float scaled = softmax.largest * kLog2E;
  for (i64 step = 0; step < count; step += kUnroll * kThreads) {
    const i64 first = step + threadIdx.x;
    Vector logits[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (first + i * kThreads < count) {
        logits[i] = vectors[first + i * kThreads];
      }
    }
    if constexpr (sizeof(T) < sizeof(float)) {
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const i64 at = first + i * kThreads;
      if (at < count) {
        Gradients<T, kWidth> result;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float gradient = exp_below(logits[i].values[j], scaled) * factor;
          kernels::store_float(&result.values[j],
                               at * kWidth + j == target ? gradient - static_cast<float>(d_ce) : gradient);
        }
        out[at] = result;
      }
    }
  }
}

// T: the type of the gradients.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) head_loss_row_kernel(const RowParams params) {
  __shared__ RowShared shared;
  const i64 token = params.first + blockIdx.x;
  float* row = params.logits + blockIdx.x * params.vocabulary;
  T* gradients = reinterpret_cast<T*>(row);
  const i64 target = params.targets[token];
  if (target == kIgnoredTarget) {
    if (threadIdx.x == 0) {
      params.losses[2 * token] = 0;
      params.losses[2 * token + 1] = 0;
    }
    for (i64 v = threadIdx.x; params.d_ce != nullptr && v < params.vocabulary; v += kThreads) {
      kernels::store_float(gradients + v, 0.0F);
    }
    return;
  }
  if (target < 0 || target >= params.vocabulary) {
    __trap();
  }
  const float logit = row[target];  // before any thread writes: reduce_row waits for all
  const SoftmaxSum softmax = reduce_row<kWidth>(row, params.vocabulary, shared);
  const float lse = softmax.largest + logf(softmax.sum);
  if (threadIdx.x == 0) {
    params.losses[2 * token] = static_cast<double>(lse - logit);
    params.losses[2 * token + 1] = static_cast<double>(lse) * static_cast<double>(lse);
  }
  if (params.d_ce != nullptr) {
    differentiate_row<T, kWidth>(params, softmax, lse, target, row, gradients);
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

// The inputs that both ops share; T is the type of x.
template <class T>
struct Head {
  explicit Head(const ir::CudaContext& from, i64 num_words)
      : context(from),
        tokens(context.input(0).dim(0)),
        width(context.input(0).dim(1)),
        vocabulary(num_words),
        scratch(tokens, vocabulary, context.input(0).type->dtype),
        x(device_cast<const T>(context.input(0))),
        weight(device_cast<const T>(context.input(1))),
        logits(reinterpret_cast<float*>(context.workspace)),
        losses(reinterpret_cast<double*>(context.workspace + scratch.losses)) {}

  // C (+)= op(A) op(B), with dense rows of C.
  template <class Out>
  void multiply(bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const T* a, i64 lda, const T* b, i64 ldb,
                bool accumulate, Out* c) const {
    if constexpr (std::is_same_v<T, float>) {
      kernels::cuda_gemm(context.stream, trans_a, trans_b, m, n, k, a, lda, b, ldb, accumulate, c, n);
    } else {
      constexpr DType kOut = std::is_same_v<Out, float> ? DType::kF32 : DType::kBF16;
      const device::MatmulShape shape{trans_a, trans_b, m, n, k, lda, ldb, n, accumulate, kOut};
      context.matmul->multiply(context.stream, shape, a, b, c, context.workspace + scratch.products);
    }
  }

  const ir::CudaContext& context;
  i64 tokens;
  i64 width;
  i64 vocabulary;
  HeadLossScratch scratch;
  const T* x;
  const T* weight;
  float* logits;
  double* losses;
};

// Calls after(begin, end) for every chunk of tokens, when its logits have become losses and gradients; then
// writes the sums. `row` lacks what differs between chunks.
template <class T, class After>
void for_each_chunk(const Head<T>& head, RowParams row, const After& after) {
  const ir::CudaContext& context = head.context;
  for (i64 begin = 0; begin < head.tokens; begin += head.scratch.chunk) {
    const i64 end = std::min(begin + head.scratch.chunk, head.tokens);
    head.multiply(false, true, end - begin, head.vocabulary, head.width, head.x + begin * head.width,
                  head.width, head.weight, head.width, false, head.logits);
    row.first = begin;
    const unsigned grid = kernels::blocks_for(end - begin, 1);
    if (head.vocabulary % 4 == 0) {
      head_loss_row_kernel<T, 4><<<grid, kThreads, 0, context.stream>>>(row);
    } else {
      head_loss_row_kernel<T, 1><<<grid, kThreads, 0, context.stream>>>(row);
    }
    WYCH_CUDA_LAUNCHED();
    after(begin, end);
  }
  head_loss_sum_kernel<<<1, kSumThreads, 0, context.stream>>>(head.tokens, head.losses, row.denominator,
                                                              context.output(0).as<double>(),
                                                              context.output(1).as<double>());
  WYCH_CUDA_LAUNCHED();
}

// Zeros in the rows of dweight to which no chunk adds: the padding, or all of them without tokens.
template <class T>
void clear_other_rows(const Head<T>& head, i64 rows, float* dweight) {
  const i64 first = head.tokens == 0 ? 0 : head.vocabulary;
  const i64 count = (rows - first) * head.width;
  if (count > 0) {
    WYCH_CUDA_CALL(cudaMemsetAsync(dweight + first * head.width, 0,
                                   static_cast<std::size_t>(count) * sizeof(float), head.context.stream));
  }
}

template <class T>
void launch_losses(const ir::CudaContext& context, i64 vocabulary) {
  const Head<T> head(context, vocabulary);
  const RowParams row{
      0,           vocabulary, context.input(2).as<i32>(), context.input(3).as<double>(), nullptr, nullptr,
      head.logits, head.losses};
  for_each_chunk(head, row, [](i64, i64) {});
}

template <class T>
void launch_backward(const ir::CudaContext& context, i64 vocabulary) {
  const Head<T> head(context, vocabulary);
  const RowParams row{0,
                      vocabulary,
                      context.input(2).as<i32>(),
                      context.input(3).as<double>(),
                      context.input(4).as<double>(),
                      context.input(5).as<double>(),
                      head.logits,
                      head.losses};
  const T* gradients = reinterpret_cast<const T*>(head.logits);
  const i64 stride = vocabulary * static_cast<i64>(sizeof(float) / sizeof(T));
  T* dx = device_cast<T>(context.output(2));
  float* dweight = context.output(3).as<float>();
  if (!context.accumulate) {
    clear_other_rows(head, context.output(3).dim(0), dweight);
  }
  for_each_chunk(head, row, [&](i64 begin, i64 end) {
    head.multiply(false, false, end - begin, head.width, vocabulary, gradients, stride, head.weight,
                  head.width, false, dx + begin * head.width);
    head.multiply(true, false, vocabulary, head.width, end - begin, gradients, stride,
                  head.x + begin * head.width, head.width, context.accumulate || begin > 0, dweight);
  });
}

}  // namespace

void HeadLoss::launch_cuda(const ir::CudaContext& context) const {
  kernels::dispatch_cuda(context.input(0).type->dtype,
                         [&]<class T>(T) { launch_losses<T>(context, vocabulary_); });
}

void HeadLossBackward::launch_cuda(const ir::CudaContext& context) const {
  kernels::dispatch_cuda(context.input(0).type->dtype,
                         [&]<class T>(T) { launch_backward<T>(context, vocabulary_); });
}

}  // namespace wych::ops
