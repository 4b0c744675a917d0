// Attention in tiles of 64 queries x 64 keys with an online softmax, on plain float32 units. Every product is
// one of the two of cuda_tile.cuh: of the rows of two matrices (scores, dout v^T), or of a tile of weights
// and the rows of a matrix (p v, ds k, p^T dout, ds^T q). Results, up to 256 columns, stay in registers.
//
// The gradient has one kernel that owns queries (dq) and one that owns keys (dk, dv, over the query heads of
// the group in order): both compute the scores again, seven products instead of five, but no sum crosses
// blocks. Tiles start at multiples of 64, so a query's bits depend on what it sees alone. Bytes: every tile
// reads the keys and values it sees (forward, dq) or the queries and dout that see it.
//
// In bfloat16 this is the oracle and fallback of attention_mma.cu, which takes the shapes that it supports;
// and both are those of cuDNN (device/cuda_attention.h), which takes what was prepared.
#include <climits>
#include <type_traits>

#include "device/cuda_attention.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_tile.cuh"
#include "ops/attention_problem.cuh"

namespace wych::ops {
namespace {

using kernels::add_weighted_rows;
using kernels::device_cast;
using kernels::kEach;
using kernels::kTile;
using kernels::kWarp;
using kernels::load_float;
using kernels::multiply_rows;
using kernels::own_column;
using kernels::own_row;
using kernels::Rows;
using kernels::store_rows;
using kernels::Tile;

constexpr int kThreads = kernels::kTileThreads;
constexpr int kMaxHeadDim = 4 * kTile;

struct Shared {
  kernels::TileShared products;
  int first_keys[kTile];  // of the queries of a tile
};

template <class T>
using Problem = AttentionProblem<T>;
template <class T>
using Gradients = AttentionGradients<T>;

// The rows of `matrix` from token `token` on, at column `head` * head_dim.
template <class T>
__device__ Rows<T> rows_at(const Problem<T>& problem, const T* matrix, i64 stride, i64 token, int head,
                           int count) {
  return {matrix + token * stride + static_cast<i64>(head) * problem.head_dim, stride, count,
          problem.head_dim};
}

// Query head `head` of qkv; its key and value heads follow all query heads.
template <class T>
__device__ Rows<T> queries_at(const Problem<T>& problem, i64 token, int head, int count) {
  return rows_at(problem, problem.qkv, problem.width(), token, head, count);
}
template <class T>
__device__ Rows<T> keys_at(const Problem<T>& problem, i64 token, int kv_head, int count) {
  return queries_at(problem, token, problem.query_heads + kv_head, count);
}
template <class T>
__device__ Rows<T> values_at(const Problem<T>& problem, i64 token, int kv_head, int count) {
  return queries_at(problem, token, problem.query_heads + problem.kv_heads + kv_head, count);
}

// Loads first_keys of the queries from `query` on and returns the smallest, rounded down to a tile.
template <class T>
__device__ int first_tile_of_keys(const Problem<T>& problem, i64 first_token, int query, Shared& shared) {
  if (threadIdx.x < kTile) {
    shared.first_keys[threadIdx.x] = problem.first_key(first_token, query + static_cast<int>(threadIdx.x));
  }
  __syncthreads();
  int first = shared.first_keys[0];
  for (int r = 1; r < kTile; ++r) {
    first = min(first, shared.first_keys[r]);
  }
  return first / kTile * kTile;
}

// The softmax of a thread's rows: with the keys so far, sum = sum_j exp(s_j - largest).
struct Softmax {
  float largest[kEach];
  float sum[kEach];
};

// Turns the products of queries and keys into exp(scale score - largest), zero where unseen, and returns by
// which factor earlier results shrink. A row that has seen nothing keeps minus infinity.
template <class T>
__device__ void exponentials(const Problem<T>& problem, const Shared& shared, int query, int key,
                             Tile& scores, Softmax& state, float (&shrink)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int first_key = shared.first_keys[own_row() + i];
    float largest = state.largest[i];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int column = key + own_column() + j;
      const bool seen = column >= first_key && column <= query + own_row() + i;
      scores[i][j] = seen ? scores[i][j] * problem.scale : -INFINITY;
      largest = fmaxf(largest, scores[i][j]);
    }
    largest = kernels::max_across(largest);
    const float base = largest == -INFINITY ? 0.0F : largest;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      scores[i][j] = expf(scores[i][j] - base);
      sum += scores[i][j];
    }
    shrink[i] = expf(state.largest[i] - base);
    state.sum[i] = fmaf(state.sum[i], shrink[i], kernels::sum_across(sum));
    state.largest[i] = largest;
  }
}

template <int kColumnTiles, class T>
__global__ void __launch_bounds__(kThreads)
    attention_forward_kernel(const Problem<T> problem, T* __restrict__ out, float* __restrict__ lse) {
  __shared__ Shared shared;
  const AttentionTile tile = query_tile<kTile>(problem);
  const int kv_head = tile.head / problem.group();
  const int count = problem.sequence - tile.first;
  const i64 token = tile.first_token + tile.first;
  const Rows<T> queries = queries_at(problem, token, tile.head, count);
  Softmax state;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    state.largest[i] = -INFINITY;
    state.sum[i] = 0;
  }
  Tile sums[kColumnTiles] = {};
  const int end = min(tile.first + kTile, problem.sequence);
  for (int key = first_tile_of_keys(problem, tile.first_token, tile.first, shared); key < end; key += kTile) {
    const i64 key_token = tile.first_token + key;
    Tile scores;
    float shrink[kEach];
    multiply_rows(shared.products, queries, keys_at(problem, key_token, kv_head, end - key), scores);
    exponentials(problem, shared, tile.first, key, scores, state, shrink);
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          sums[c][i][j] *= shrink[i];
        }
      }
    }
    add_weighted_rows(shared.products, scores, values_at(problem, key_token, kv_head, end - key), sums);
  }
  float factors[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    factors[i] = 1.0F / state.sum[i];
    if (own_column() == 0 && own_row() + i < count) {
      lse[problem.lse_at(tile.first_token, tile.head) + tile.first + own_row() + i] =
          state.largest[i] + logf(state.sum[i]);
    }
  }
  store_rows(sums, factors, count, problem.head_dim, problem.out_width(),
             out + token * problem.out_width() + static_cast<i64>(tile.head) * problem.head_dim);
}

// One warp a token and head.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_delta_kernel(const Problem<T> problem, const T* __restrict__ dout, const T* __restrict__ out,
                           float* __restrict__ delta) {
  const i64 index = static_cast<i64>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (index >= problem.tokens() * problem.query_heads) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const i64 first = index * problem.head_dim;
  float dot = 0;
  for (int c = lane; c < problem.head_dim; c += kWarp) {
    dot = fmaf(load_float(dout + first + c), load_float(out + first + c), dot);
  }
  dot = kernels::warp_sum(dot);
  if (lane == 0) {
    const i64 token = index / problem.query_heads;
    const i64 query = token % problem.sequence;
    delta[problem.lse_at(token - query, static_cast<int>(index % problem.query_heads)) + query] = dot;
  }
}

// p of one score, and scale ds of it and of dout . v.
__device__ void differentiate(bool seen, float scale, float lse, float delta, float& score, float& product) {
  const float p = seen ? expf(score * scale - lse) : 0.0F;
  product = seen ? p * (product - delta) * scale : 0.0F;
  score = p;
}

template <int kColumnTiles, class T>
__global__ void __launch_bounds__(kThreads)
    attention_dq_kernel(const Problem<T> problem, const Gradients<T> gradients) {
  __shared__ Shared shared;
  const AttentionTile tile = query_tile<kTile>(problem);
  const int kv_head = tile.head / problem.group();
  const int count = problem.sequence - tile.first;
  const i64 token = tile.first_token + tile.first;
  const Rows<T> queries = queries_at(problem, token, tile.head, count);
  const Rows<T> dout = rows_at(problem, gradients.dout, problem.out_width(), token, tile.head, count);
  const i64 row = problem.lse_at(tile.first_token, tile.head) + tile.first + own_row();
  float lse[kEach];
  float delta[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    lse[i] = own_row() + i < count ? gradients.lse[row + i] : 0.0F;
    delta[i] = own_row() + i < count ? gradients.delta[row + i] : 0.0F;
  }
  Tile sums[kColumnTiles] = {};
  const int end = min(tile.first + kTile, problem.sequence);
  for (int key = first_tile_of_keys(problem, tile.first_token, tile.first, shared); key < end; key += kTile) {
    const i64 key_token = tile.first_token + key;
    const Rows<T> keys = keys_at(problem, key_token, kv_head, end - key);
    Tile scores;
    Tile products;
    multiply_rows(shared.products, queries, keys, scores);
    multiply_rows(shared.products, dout, values_at(problem, key_token, kv_head, end - key), products);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int first_key = shared.first_keys[own_row() + i];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int column = key + own_column() + j;
        const bool seen = column >= first_key && column <= tile.first + own_row() + i;
        differentiate(seen, problem.scale, lse[i], delta[i], scores[i][j], products[i][j]);
      }
    }
    add_weighted_rows(shared.products, products, keys, sums);
  }
  const float ones[kEach] = {1, 1, 1, 1};
  store_rows(sums, ones, count, problem.head_dim, problem.width(),
             gradients.dqkv + token * problem.width() + static_cast<i64>(tile.head) * problem.head_dim);
}

// Tiles here have keys as rows and queries as columns.
template <int kColumnTiles, class T>
__device__ void add_key_gradients(Shared& shared, const Problem<T>& problem, const Gradients<T>& gradients,
                                  i64 first_token, int head, int query, int key, int kv_head,
                                  Tile (&dk)[kColumnTiles], Tile (&dv)[kColumnTiles]) {
  const i64 token = first_token + query;
  const int count = problem.sequence - query;
  const Rows<T> queries = queries_at(problem, token, head, count);
  const Rows<T> dout = rows_at(problem, gradients.dout, problem.out_width(), token, head, count);
  const int num_keys = problem.sequence - key;
  const i64 column = problem.lse_at(first_token, head) + query + own_column();
  Tile scores;
  Tile products;
  multiply_rows(shared.products, keys_at(problem, first_token + key, kv_head, num_keys), queries, scores);
  multiply_rows(shared.products, values_at(problem, first_token + key, kv_head, num_keys), dout, products);
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const bool exists = own_column() + j < count;
    const float lse = exists ? gradients.lse[column + j] : 0.0F;
    const float delta = exists ? gradients.delta[column + j] : 0.0F;
    const int first_key = shared.first_keys[own_column() + j];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = key + own_row() + i;
      const bool seen = row >= first_key && row <= query + own_column() + j;
      differentiate(seen, problem.scale, lse, delta, scores[i][j], products[i][j]);
    }
  }
  add_weighted_rows(shared.products, scores, dout, dv);
  add_weighted_rows(shared.products, products, queries, dk);
}

template <int kColumnTiles, class T>
__global__ void __launch_bounds__(kThreads)
    attention_dkv_kernel(const Problem<T> problem, const Gradients<T> gradients) {
  __shared__ Shared shared;
  const AttentionTile tile = key_tile<kTile>(problem);
  const int key = tile.first;
  const int kv_head = tile.head;
  const i64 first_token = tile.first_token;
  const int key_end = min(key + kTile, problem.sequence);
  const int query_end = problem.query_end(key_end);
  Tile dk[kColumnTiles] = {};
  Tile dv[kColumnTiles] = {};
  for (int head = kv_head * problem.group(); head < (kv_head + 1) * problem.group(); ++head) {
    for (int query = key; query < query_end; query += kTile) {
      int first_key = INT_MAX;
      if (threadIdx.x < kTile) {
        first_key = problem.first_key(first_token, query + static_cast<int>(threadIdx.x));
        shared.first_keys[threadIdx.x] = first_key;
      }
      if (__syncthreads_or(static_cast<int>(first_key < key_end)) != 0) {  // else later documents alone
        add_key_gradients(shared, problem, gradients, first_token, head, query, key, kv_head, dk, dv);
      }
    }
  }
  const i64 first = (first_token + key) * problem.width() + static_cast<i64>(kv_head) * problem.head_dim;
  const float ones[kEach] = {1, 1, 1, 1};
  store_rows(dk, ones, key_end - key, problem.head_dim, problem.width(),
             gradients.dqkv + first + problem.out_width());
  store_rows(
      dv, ones, key_end - key, problem.head_dim, problem.width(),
      gradients.dqkv + first + problem.out_width() + static_cast<i64>(problem.kv_heads) * problem.head_dim);
}

template <int kColumnTiles, class T>
void launch_forward(CUstream_st* stream, const Problem<T>& problem, T* out, float* lse) {
  const unsigned blocks = attention_blocks(problem, kTile, problem.query_heads);
  attention_forward_kernel<kColumnTiles><<<blocks, kThreads, 0, stream>>>(problem, out, lse);
  WYCH_CUDA_LAUNCHED();
}

template <int kColumnTiles, class T>
void launch_backward(CUstream_st* stream, const Problem<T>& problem, const Gradients<T>& gradients) {
  const unsigned queries = attention_blocks(problem, kTile, problem.query_heads);
  attention_dq_kernel<kColumnTiles><<<queries, kThreads, 0, stream>>>(problem, gradients);
  WYCH_CUDA_LAUNCHED();
  const unsigned keys = attention_blocks(problem, kTile, problem.kv_heads);
  attention_dkv_kernel<kColumnTiles><<<keys, kThreads, 0, stream>>>(problem, gradients);
  WYCH_CUDA_LAUNCHED();
}

// Calls f with the number of tiles that hold a head's columns, as a constant.
template <class F>
void dispatch_columns(int head_dim, F&& f) {
  if (head_dim <= kTile) {
    f.template operator()<1>();
  } else if (head_dim <= 2 * kTile) {
    f.template operator()<2>();
  } else {
    f.template operator()<4>();
  }
}

template <class T>
void run_forward(const ir::CudaContext& context, const AttentionShape& shape) {
  const Problem<T> problem = attention_problem<T>(shape, context.input(0), context.input(1));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (attention_mma_supports(shape)) {
      return attention_mma_forward(context.stream, problem, device_cast<T>(context.output(0)),
                                   context.output(1).as<float>());
    }
  }
  WYCH_CHECK(problem.head_dim <= kMaxHeadDim, "head_dim {}", problem.head_dim);
  dispatch_columns(problem.head_dim, [&]<int kColumnTiles>() {
    launch_forward<kColumnTiles>(context.stream, problem, device_cast<T>(context.output(0)),
                                 context.output(1).as<float>());
  });
}

template <class T>
void run_backward(const ir::CudaContext& context, const AttentionShape& shape) {
  const Problem<T> problem = attention_problem<T>(shape, context.input(1), context.input(4));
  const T* dout = device_cast<const T>(context.input(0));
  auto* delta = reinterpret_cast<float*>(context.workspace);
  const i64 rows = context.input(3).elements();
  attention_delta_kernel<<<kernels::blocks_for(rows, kThreads / kWarp), kThreads, 0, context.stream>>>(
      problem, dout, device_cast<const T>(context.input(2)), delta);
  WYCH_CUDA_LAUNCHED();
  const Gradients<T> gradients{dout, context.input(3).as<float>(), delta, device_cast<T>(context.output(0))};
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (attention_mma_supports(shape)) {
      return attention_mma_backward(context.stream, problem, gradients);
    }
  }
  WYCH_CHECK(problem.head_dim <= kMaxHeadDim, "head_dim {}", problem.head_dim);
  dispatch_columns(problem.head_dim, [&]<int kColumnTiles>() {
    launch_backward<kColumnTiles>(context.stream, problem, gradients);
  });
}

device::AttentionOperands forward_operands(const ir::CudaContext& context) {
  return {.qkv = context.input(0).data,
          .out = context.output(0).data,
          .lse = context.output(1).data,
          .workspace = context.workspace};
}

device::AttentionOperands gradient_operands(const ir::CudaContext& context) {
  return {.qkv = context.input(1).data,
          .out = context.input(2).data,
          .lse = context.input(3).data,
          .dout = context.input(0).data,
          .dqkv = context.output(0).data,
          .workspace = context.workspace};
}

void prepare(device::AttentionPass pass, const ir::CudaContext& context, const AttentionShape& shape,
             const ir::View& qkv, const device::AttentionOperands& operands) {
  const auto problem = fused_attention(shape, *qkv.type, context.target);
  if (problem && context.attention != nullptr) {
    context.attention->prepare(pass, context.stream, *problem, operands);
  }
}

// False: nothing was prepared, and kernels of our own have to do it.
bool run_prepared(device::AttentionPass pass, const ir::CudaContext& context, const AttentionShape& shape,
                  const ir::View& qkv, const device::AttentionOperands& operands) {
  const auto problem = fused_attention(shape, *qkv.type, context.target);
  if (!problem || context.attention == nullptr || !context.attention->is_prepared(pass, *problem)) {
    return false;
  }
  context.attention->run(pass, context.stream, *problem, operands);
  return true;
}

}  // namespace

void Attention::prepare_cuda(const ir::CudaContext& context) const {
  prepare(device::AttentionPass::kForward, context, shape_, context.input(0), forward_operands(context));
}

void AttentionDqkv::prepare_cuda(const ir::CudaContext& context) const {
  prepare(device::AttentionPass::kGradient, context, shape_, context.input(1), gradient_operands(context));
}

void Attention::launch_cuda(const ir::CudaContext& context) const {
  if (run_prepared(device::AttentionPass::kForward, context, shape_, context.input(0),
                   forward_operands(context))) {
    return;
  }
  if (context.input(0).dim(0) > 0) {
    kernels::dispatch_cuda(context.input(0).type->dtype,
                           [&]<class T>(T) { run_forward<T>(context, shape_); });
  }
}

void AttentionDqkv::launch_cuda(const ir::CudaContext& context) const {
  if (run_prepared(device::AttentionPass::kGradient, context, shape_, context.input(1),
                   gradient_operands(context))) {
    return;
  }
  if (context.input(1).dim(0) > 0) {
    kernels::dispatch_cuda(context.input(1).type->dtype,
                           [&]<class T>(T) { run_backward<T>(context, shape_); });
  }
}

}  // namespace wych::ops
