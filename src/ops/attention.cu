// Attention in tiles of 64 queries x 64 keys with an online softmax, on plain float32 units. Every product is
// one of the two of cuda_tile.cuh: of the rows of two matrices (scores, dout v^T), or of a tile of weights
// and the rows of a matrix (p v, ds k, p^T dout, ds^T q). Results, up to 256 columns, stay in registers.
//
// The gradient has one kernel that owns queries (dq) and one that owns keys (dk, dv, over the query heads of
// the group in order): both compute the scores again, seven products instead of five, but no sum crosses
// blocks. Tiles start at multiples of 64, so a query's bits depend on what it sees alone. Bytes: every tile
// reads the keys and values it sees (forward, dq) or the queries and dout that see it.
#include <climits>

#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_tile.cuh"
#include "ops/attention.h"

namespace wych::ops {
namespace {

using kernels::add_weighted_rows;
using kernels::kEach;
using kernels::kTile;
using kernels::kWarp;
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

struct Problem {
  int num_sequences;
  int sequence;
  int query_heads;
  int kv_heads;
  int head_dim;
  int window;  // at most `sequence`; 0: unlimited
  float scale;
  const float* qkv;
  const i32* document_start;

  __device__ i64 width() const { return static_cast<i64>(query_heads + 2 * kv_heads) * head_dim; }
  __device__ i64 out_width() const { return static_cast<i64>(query_heads) * head_dim; }
  __device__ i64 tokens() const { return static_cast<i64>(num_sequences) * sequence; }
  // The first key that a query sees; none for queries behind the sequence.
  __device__ int first_key(i64 first_token, int query) const {
    if (query >= sequence) {
      return INT_MAX;
    }
    const int document = document_start[first_token + query];
    const int oldest = window > 0 ? query + 1 - window : 0;
    return max(max(document, oldest), 0);
  }
};

// The rows of `matrix` from token `token` on, at column `head` * head_dim.
__device__ Rows rows_at(const Problem& problem, const float* matrix, i64 stride, i64 token, int head,
                        int count) {
  return {matrix + token * stride + static_cast<i64>(head) * problem.head_dim, stride, count,
          problem.head_dim};
}

// Query head `head` of qkv; its key and value heads follow all query heads.
__device__ Rows queries_at(const Problem& problem, i64 token, int head, int count) {
  return rows_at(problem, problem.qkv, problem.width(), token, head, count);
}
__device__ Rows keys_at(const Problem& problem, i64 token, int kv_head, int count) {
  return queries_at(problem, token, problem.query_heads + kv_head, count);
}
__device__ Rows values_at(const Problem& problem, i64 token, int kv_head, int count) {
  return queries_at(problem, token, problem.query_heads + problem.kv_heads + kv_head, count);
}

// Loads first_keys of the queries from `query` on and returns the smallest, rounded down to a tile.
__device__ int first_tile_of_keys(const Problem& problem, i64 first_token, int query, Shared& shared) {
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

// The tile of queries of a block, numbered from the last, which have most keys, so that short blocks level
// the load at the end.
struct QueryTile {
  i64 first_token;  // of the sequence
  int head;
  int query;  // the first
};
__device__ QueryTile query_tile(const Problem& problem) {
  const int tiles = (problem.sequence + kTile - 1) / kTile;
  const i64 pairs = static_cast<i64>(problem.num_sequences) * problem.query_heads;
  const i64 pair = blockIdx.x % pairs;
  return {pair / problem.query_heads * problem.sequence, static_cast<int>(pair % problem.query_heads),
          (tiles - 1 - static_cast<int>(blockIdx.x / pairs)) * kTile};
}

// The softmax of a thread's rows: with the keys so far, sum = sum_j exp(s_j - largest).
struct Softmax {
  float largest[kEach];
  float sum[kEach];
};

// Turns the products of queries and keys into exp(scale score - largest), zero where unseen, and returns by
// which factor earlier results shrink. A row that has seen nothing keeps minus infinity.
__device__ void exponentials(const Problem& problem, const Shared& shared, int query, int key, Tile& scores,
                             Softmax& state, float (&shrink)[kEach]) {
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

template <int kColumnTiles>
__global__ void __launch_bounds__(kThreads)
    attention_forward_kernel(const Problem problem, float* __restrict__ out, float* __restrict__ lse) {
  __shared__ Shared shared;
  const QueryTile tile = query_tile(problem);
  const int kv_head = tile.head / (problem.query_heads / problem.kv_heads);
  const int count = problem.sequence - tile.query;
  const i64 token = tile.first_token + tile.query;
  const Rows queries = queries_at(problem, token, tile.head, count);
  Softmax state;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    state.largest[i] = -INFINITY;
    state.sum[i] = 0;
  }
  Tile sums[kColumnTiles] = {};
  const int end = min(tile.query + kTile, problem.sequence);
  for (int key = first_tile_of_keys(problem, tile.first_token, tile.query, shared); key < end; key += kTile) {
    const i64 key_token = tile.first_token + key;
    Tile scores;
    float shrink[kEach];
    multiply_rows(shared.products, queries, keys_at(problem, key_token, kv_head, end - key), scores);
    exponentials(problem, shared, tile.query, key, scores, state, shrink);
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
      lse[tile.head * problem.tokens() + token + own_row() + i] = state.largest[i] + logf(state.sum[i]);
    }
  }
  store_rows(sums, factors, count, problem.head_dim, problem.out_width(),
             out + token * problem.out_width() + static_cast<i64>(tile.head) * problem.head_dim);
}

struct Gradients {
  const float* dout;
  const float* lse;
  const float* delta;  // f32[hq, T]: dout . out
  float* dqkv;
};

// One warp a token and head.
__global__ void __launch_bounds__(kThreads)
    attention_delta_kernel(const Problem problem, const float* __restrict__ dout,
                           const float* __restrict__ out, float* __restrict__ delta) {
  const i64 index = static_cast<i64>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (index >= problem.tokens() * problem.query_heads) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const i64 first = index * problem.head_dim;
  float dot = 0;
  for (int c = lane; c < problem.head_dim; c += kWarp) {
    dot = fmaf(dout[first + c], out[first + c], dot);
  }
  dot = kernels::warp_sum(dot);
  if (lane == 0) {
    delta[index % problem.query_heads * problem.tokens() + index / problem.query_heads] = dot;
  }
}

// p of one score, and scale ds of it and of dout . v.
__device__ void differentiate(bool seen, float scale, float lse, float delta, float& score, float& product) {
  const float p = seen ? expf(score * scale - lse) : 0.0F;
  product = seen ? p * (product - delta) * scale : 0.0F;
  score = p;
}

template <int kColumnTiles>
__global__ void __launch_bounds__(kThreads)
    attention_dq_kernel(const Problem problem, const Gradients gradients) {
  __shared__ Shared shared;
  const QueryTile tile = query_tile(problem);
  const int kv_head = tile.head / (problem.query_heads / problem.kv_heads);
  const int count = problem.sequence - tile.query;
  const i64 token = tile.first_token + tile.query;
  const Rows queries = queries_at(problem, token, tile.head, count);
  const Rows dout = rows_at(problem, gradients.dout, problem.out_width(), token, tile.head, count);
  const i64 row = tile.head * problem.tokens() + token + own_row();
  float lse[kEach];
  float delta[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    lse[i] = own_row() + i < count ? gradients.lse[row + i] : 0.0F;
    delta[i] = own_row() + i < count ? gradients.delta[row + i] : 0.0F;
  }
  Tile sums[kColumnTiles] = {};
  const int end = min(tile.query + kTile, problem.sequence);
  for (int key = first_tile_of_keys(problem, tile.first_token, tile.query, shared); key < end; key += kTile) {
    const i64 key_token = tile.first_token + key;
    const Rows keys = keys_at(problem, key_token, kv_head, end - key);
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
        const bool seen = column >= first_key && column <= tile.query + own_row() + i;
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
template <int kColumnTiles>
__device__ void add_key_gradients(Shared& shared, const Problem& problem, const Gradients& gradients,
                                  i64 first_token, int head, int query, int key, int kv_head,
                                  Tile (&dk)[kColumnTiles], Tile (&dv)[kColumnTiles]) {
  const i64 token = first_token + query;
  const int count = problem.sequence - query;
  const Rows queries = queries_at(problem, token, head, count);
  const Rows dout = rows_at(problem, gradients.dout, problem.out_width(), token, head, count);
  const int num_keys = problem.sequence - key;
  const i64 column = head * problem.tokens() + token + own_column();
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

template <int kColumnTiles>
__global__ void __launch_bounds__(kThreads)
    attention_dkv_kernel(const Problem problem, const Gradients gradients) {
  __shared__ Shared shared;
  const i64 pairs = static_cast<i64>(problem.num_sequences) * problem.kv_heads;
  const i64 pair = blockIdx.x % pairs;
  const int key = static_cast<int>(blockIdx.x / pairs) * kTile;  // the first keys are seen most
  const i64 first_token = pair / problem.kv_heads * problem.sequence;
  const int kv_head = static_cast<int>(pair % problem.kv_heads);
  const int group = problem.query_heads / problem.kv_heads;
  const int key_end = min(key + kTile, problem.sequence);
  const int query_end =
      problem.window > 0 ? min(problem.sequence, key_end - 1 + problem.window) : problem.sequence;
  Tile dk[kColumnTiles] = {};
  Tile dv[kColumnTiles] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
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

Problem problem_of(const AttentionShape& shape, const ir::View& qkv, const ir::View& document_start) {
  WYCH_CHECK(shape.layout.head_dim <= kMaxHeadDim, "head_dim {}", shape.layout.head_dim);
  WYCH_CHECK(shape.sequence <= INT_MAX / 4, "sequence {}", shape.sequence);
  return {static_cast<int>(qkv.dim(0) / shape.sequence),
          static_cast<int>(shape.sequence),
          static_cast<int>(shape.layout.query_heads),
          static_cast<int>(shape.layout.kv_heads),
          static_cast<int>(shape.layout.head_dim),
          static_cast<int>(shape.window < shape.sequence ? shape.window : shape.sequence),
          static_cast<float>(shape.scale),
          qkv.as<float>(),
          document_start.as<i32>()};
}

// Blocks of a kernel whose block owns a tile of a sequence and a head.
unsigned num_tiles(const Problem& problem, int heads) {
  return kernels::blocks_for(ceil_div(problem.sequence, kTile) * problem.num_sequences * heads, 1);
}

template <int kColumnTiles>
void launch_forward(CUstream_st* stream, const Problem& problem, float* out, float* lse) {
  const unsigned blocks = num_tiles(problem, problem.query_heads);
  attention_forward_kernel<kColumnTiles><<<blocks, kThreads, 0, stream>>>(problem, out, lse);
  WYCH_CUDA_LAUNCHED();
}

template <int kColumnTiles>
void launch_backward(CUstream_st* stream, const Problem& problem, const Gradients& gradients) {
  const unsigned queries = num_tiles(problem, problem.query_heads);
  attention_dq_kernel<kColumnTiles><<<queries, kThreads, 0, stream>>>(problem, gradients);
  WYCH_CUDA_LAUNCHED();
  const unsigned keys = num_tiles(problem, problem.kv_heads);
  attention_dkv_kernel<kColumnTiles><<<keys, kThreads, 0, stream>>>(problem, gradients);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void Attention::launch_cuda(const ir::CudaContext& context) const {
  const Problem problem = problem_of(shape_, context.input(0), context.input(1));
  if (problem.num_sequences == 0) {
    return;
  }
  const auto launch = problem.head_dim <= kTile       ? launch_forward<1>
                      : problem.head_dim <= 2 * kTile ? launch_forward<2>
                                                      : launch_forward<4>;
  launch(context.stream, problem, context.output(0).as<float>(), context.output(1).as<float>());
}

void AttentionDqkv::launch_cuda(const ir::CudaContext& context) const {
  const Problem problem = problem_of(shape_, context.input(1), context.input(4));
  if (problem.num_sequences == 0) {
    return;
  }
  auto* delta = reinterpret_cast<float*>(context.workspace);
  const i64 rows = context.input(3).elements();
  attention_delta_kernel<<<kernels::blocks_for(rows, kThreads / kWarp), kThreads, 0, context.stream>>>(
      problem, context.input(0).as<float>(), context.input(2).as<float>(), delta);
  WYCH_CUDA_LAUNCHED();
  const Gradients gradients{context.input(0).as<float>(), context.input(3).as<float>(), delta,
                            context.output(0).as<float>()};
  const auto launch = problem.head_dim <= kTile       ? launch_backward<1>
                      : problem.head_dim <= 2 * kTile ? launch_backward<2>
                                                      : launch_backward<4>;
  launch(context.stream, problem, gradients);
}

}  // namespace wych::ops
