// kv_append copies an element a thread: 8 bytes each. cached_attention: one block a query and head, whose
// warps take every eighth key with a softmax of their own (largest score, sum, weighted values) and merge the
// eight in order; it reads the visible keys and values once per query head. Positions come from the device.
#include "kernels/cuda_launch.cuh"
#include "ops/kv_cache.h"

namespace wych::ops {
namespace {

using kernels::kWarp;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxHeadDim = 256;
constexpr int kColumns = kMaxHeadDim / kWarp;  // of a lane: lane, lane + 32, ..

struct AppendParams {
  i64 tokens;
  i64 positions;
  i64 width;       // of qkv
  i64 key_column;  // keys and values lie side by side from here on
  i64 kv_heads;
  i64 head_dim;
  const float* qkv;
  const i32* start;
  float* cache;
};

__global__ void __launch_bounds__(kThreads) kv_append_kernel(const AppendParams params) {
  const i64 start = *params.start;
  if (start < 0 || start + params.tokens > params.positions) {
    __trap();
  }
  const i64 columns = 2 * params.kv_heads * params.head_dim;
  const i64 index = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= params.tokens * columns) {
    return;
  }
  const i64 token = index / columns;
  const i64 column = index % columns;
  const i64 head = column / params.head_dim;  // of the keys, then of the values
  params.cache[(head * params.positions + start + token) * params.head_dim + column % params.head_dim] =
      params.qkv[token * params.width + params.key_column + column];
}

struct CachedParams {
  i64 tokens;
  i64 positions;
  i64 width;
  i64 query_heads;
  i64 kv_heads;
  int head_dim;
  i64 window;
  float scale;
  const float* qkv;
  const float* cache;
  const i32* start;
  float* out;
};

// With the keys so far: total = sum exp(score - largest), sum = sum exp(score - largest) value.
struct PartialSoftmax {
  float largest = -INFINITY;
  float total = 0;
  float sum[kColumns] = {};
};

// Adds the keys first, first + kWarps, .. below `end` to the state of a warp.
__device__ void attend(const float (&query)[kColumns], const float* keys, const float* values, int head_dim,
                       float scale, i64 first, i64 end, PartialSoftmax& state) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (i64 key = first; key < end; key += kWarps) {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int c = lane + i * kWarp;
      dot = c < head_dim ? fmaf(query[i], keys[key * head_dim + c], dot) : dot;
    }
    const float score = scale * kernels::warp_sum(dot);
    const float largest = fmaxf(state.largest, score);
    const float shrink = expf(state.largest - largest);
    const float weight = expf(score - largest);
    state.largest = largest;
    state.total = fmaf(state.total, shrink, weight);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int c = lane + i * kWarp;
      if (c < head_dim) {
        state.sum[i] = fmaf(weight, values[key * head_dim + c], state.sum[i] * shrink);
      }
    }
  }
}

struct Merge {
  float largest[kWarps];
  float total[kWarps];
  float sum[kWarps][kMaxHeadDim];
};

// Warps without a key count nothing: their largest is minus infinity.
__device__ void merge(const Merge& parts, int head_dim, float* out) {
  float largest = parts.largest[0];
  for (int warp = 1; warp < kWarps; ++warp) {
    largest = fmaxf(largest, parts.largest[warp]);
  }
  float total = 0;
  float factors[kWarps];
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    factors[warp] = expf(parts.largest[warp] - largest);
    total = fmaf(parts.total[warp], factors[warp], total);
  }
  for (int c = static_cast<int>(threadIdx.x); c < head_dim; c += kThreads) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      sum = fmaf(parts.sum[warp][c], factors[warp], sum);
    }
    out[c] = sum / total;
  }
}

__global__ void __launch_bounds__(kThreads) cached_attention_kernel(const CachedParams params) {
  __shared__ Merge parts;
  const i64 token = blockIdx.x / params.query_heads;
  const i64 head = blockIdx.x % params.query_heads;
  const i64 start = *params.start;
  if (start < 0 || start + params.tokens > params.positions) {
    __trap();
  }
  const int head_dim = params.head_dim;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const i64 kv_head = head / (params.query_heads / params.kv_heads);
  const float* keys = params.cache + kv_head * params.positions * head_dim;
  const float* values = keys + params.kv_heads * params.positions * head_dim;
  const i64 end = start + token + 1;
  const i64 begin = params.window > 0 && end > params.window ? end - params.window : 0;
  float query[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int c = lane + i * kWarp;
    query[i] = c < head_dim ? params.qkv[token * params.width + head * head_dim + c] : 0.0F;
  }
  PartialSoftmax state;
  attend(query, keys, values, head_dim, params.scale, begin + warp, end, state);
  if (lane == 0) {
    parts.largest[warp] = state.largest;
    parts.total[warp] = state.total;
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    parts.sum[warp][lane + i * kWarp] = state.sum[i];
  }
  __syncthreads();
  merge(parts, head_dim, params.out + blockIdx.x * static_cast<i64>(head_dim));
}

}  // namespace

void KvAppend::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 count = tokens * 2 * layout_.kv_width();
  if (count == 0) {
    return;
  }
  const AppendParams params{tokens,
                            context.output(0).dim(2),
                            layout_.width(),
                            layout_.key_column(),
                            layout_.kv_heads,
                            layout_.head_dim,
                            context.input(0).as<float>(),
                            context.input(1).as<i32>(),
                            context.output(0).as<float>()};
  kv_append_kernel<<<kernels::blocks_for(count, kThreads), kThreads, 0, context.stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

void CachedAttention::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  if (tokens == 0) {
    return;
  }
  WYCH_CHECK(layout_.head_dim <= kMaxHeadDim, "head_dim {}", layout_.head_dim);
  const CachedParams params{tokens,
                            context.input(1).dim(2),
                            layout_.width(),
                            layout_.query_heads,
                            layout_.kv_heads,
                            static_cast<int>(layout_.head_dim),
                            window_,
                            static_cast<float>(scale_),
                            context.input(0).as<float>(),
                            context.input(1).as<float>(),
                            context.input(2).as<i32>(),
                            context.output(0).as<float>()};
  const unsigned blocks = kernels::blocks_for(tokens * layout_.query_heads, 1);
  cached_attention_kernel<<<blocks, kThreads, 0, context.stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
