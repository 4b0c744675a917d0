// What the kernels of attention.cu and attention_mma.cu share: the problem, what a query sees, and how blocks
// divide queries and keys.
#pragma once

#include <climits>

#include "kernels/cuda_launch.cuh"
#include "ops/attention.h"

namespace wych::ops {

template <class T>
struct AttentionProblem {
  int num_sequences;
  int sequence;
  int query_heads;
  int kv_heads;
  int head_dim;
  int window;  // at most `sequence`; 0: unlimited
  float scale;
  const T* qkv;
  const i32* document_start;  // null: no documents

  __device__ i64 width() const { return static_cast<i64>(query_heads + 2 * kv_heads) * head_dim; }
  __device__ i64 out_width() const { return static_cast<i64>(query_heads) * head_dim; }
  __device__ i64 tokens() const { return static_cast<i64>(num_sequences) * sequence; }
  __device__ int group() const { return query_heads / kv_heads; }
  // The first element of query head `head` of a token of qkv. Key head h follows as number query_heads + h,
  // value head h as query_heads + kv_heads + h.
  __device__ i64 at(i64 token, int head) const { return token * width() + static_cast<i64>(head) * head_dim; }
  // The first element of a head of a token of out.
  __device__ i64 out_at(i64 token, int head) const {
    return token * out_width() + static_cast<i64>(head) * head_dim;
  }
  // Where a head of a sequence lies in lse and delta.
  __device__ i64 lse_at(i64 first_token, int head) const {
    return first_token * query_heads + static_cast<i64>(head) * sequence;
  }
  // The first key that a query sees; none for queries behind the sequence.
  __device__ int first_key(i64 first_token, int query) const {
    if (query >= sequence) {
      return INT_MAX;
    }
    const int document = document_start != nullptr ? document_start[first_token + query] : 0;
    const int oldest = window > 0 ? query + 1 - window : 0;
    return max(max(document, oldest), 0);
  }
  // The end of the queries that may see keys before `key_end`.
  __device__ int query_end(int key_end) const {
    return window > 0 ? min(sequence, key_end - 1 + window) : sequence;
  }
};

template <class T>
AttentionProblem<T> attention_problem(const AttentionShape& shape, const ir::View& qkv,
                                      const ir::View& document_start) {
  WYCH_CHECK(shape.sequence <= INT_MAX / 4, "sequence {}", shape.sequence);
  return {static_cast<int>(qkv.dim(0) / shape.sequence),
          static_cast<int>(shape.sequence),
          static_cast<int>(shape.layout.query_heads),
          static_cast<int>(shape.layout.kv_heads),
          static_cast<int>(shape.layout.head_dim),
          static_cast<int>(shape.window < shape.sequence ? shape.window : shape.sequence),
          static_cast<float>(shape.scale),
          kernels::device_cast<const T>(qkv),
          shape.documents ? document_start.as<i32>() : nullptr};
}

template <class T>
struct AttentionGradients {
  const T* dout;
  const float* lse;
  const float* delta;  // of the shape of lse: dout . out
  T* dqkv;
};

// The tile of kRows queries or keys of a block and its head. Tiles are numbered from those with most work, so
// that short blocks level the load at the end: queries from the last, keys from the first.
struct AttentionTile {
  i64 first_token;  // of the sequence
  int head;
  int first;  // query or key
};
template <int kRows, class T>
__device__ AttentionTile query_tile(const AttentionProblem<T>& problem) {
  const int tiles = (problem.sequence + kRows - 1) / kRows;
  const i64 pairs = static_cast<i64>(problem.num_sequences) * problem.query_heads;
  const i64 pair = blockIdx.x % pairs;
  return {pair / problem.query_heads * problem.sequence, static_cast<int>(pair % problem.query_heads),
          (tiles - 1 - static_cast<int>(blockIdx.x / pairs)) * kRows};
}
template <int kRows, class T>
__device__ AttentionTile key_tile(const AttentionProblem<T>& problem) {
  const i64 pairs = static_cast<i64>(problem.num_sequences) * problem.kv_heads;
  const i64 pair = blockIdx.x % pairs;
  return {pair / problem.kv_heads * problem.sequence, static_cast<int>(pair % problem.kv_heads),
          static_cast<int>(blockIdx.x / pairs) * kRows};
}

// Blocks of a kernel whose block owns `rows` queries or keys of a sequence and a head.
template <class T>
unsigned attention_blocks(const AttentionProblem<T>& problem, int rows, int heads) {
  return kernels::blocks_for(ceil_div(i64{problem.sequence}, i64{rows}) * problem.num_sequences * heads, 1);
}

// attention_mma.cu: bfloat16 on tensor cores.
bool attention_mma_supports(const AttentionShape& shape);
void attention_mma_forward(CUstream_st* stream, const AttentionProblem<__nv_bfloat16>& problem,
                           __nv_bfloat16* out, float* lse);
// Given delta.
void attention_mma_backward(CUstream_st* stream, const AttentionProblem<__nv_bfloat16>& problem,
                            const AttentionGradients<__nv_bfloat16>& gradients);

}  // namespace wych::ops
