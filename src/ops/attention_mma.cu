// Attention in bfloat16 on tensor cores (kernels/cuda_mma.cuh), scores and sums in float32: head_dim a
// multiple of 8 up to 128, padded with zeros to 64 or 128 columns in shared memory. attention.cu is the
// oracle, and takes all other shapes.
//
// As there, the gradient has one kernel that owns queries (dq) and one that owns keys (dk, dv, over the query
// heads of the group in order): seven products instead of five, but no sum crosses blocks. Blocks have four
// warps. Those that own queries have 128, a warp 32, and let keys and values pass in tiles; those that own
// keys have 64, a warp 16, and let queries and dout pass. Tiles pass through two stages of shared memory, the
// next one being copied while one is used. Weights p and ds are rounded to bfloat16 for the products that sum
// them, as are all results; nothing else is. Bytes: as in attention.cu.
#include <climits>
#include <cstdint>

#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_mma.cuh"
#include "ops/attention_problem.cuh"

namespace wych::ops {
namespace {

using kernels::add_weighted_rows;
using kernels::copy_tile;
using kernels::fast_exp2;
using kernels::kWarp;
using kernels::multiply_rows;
using kernels::Pieces;

using Element = __nv_bfloat16;
using Problem = AttentionProblem<Element>;
using Gradients = AttentionGradients<Element>;

constexpr int kThreads = 128;
constexpr int kBlocksPerSm = 2;
constexpr int kQueries = 128;  // of a block that owns queries
constexpr int kPieceRows = 2;  // 16 rows each of a warp there
constexpr int kKeys = 64;      // of a block that owns keys, and of a tile that passes in the forward
constexpr int kFewKeys = 32;   // of one that passes in dq, where two products are held
constexpr int kPassing = 64;   // queries of a tile that passes
constexpr int kMaxHeadDim = 128;
constexpr float kLog2E = 1.4426950408889634F;
constexpr unsigned kAllLanes = 0xffffffffU;

constexpr u32 tile_bytes(int rows, int columns) { return static_cast<u32>(rows * columns * 2); }

__device__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
// The first row of this warp in a block's tile, with so many rows a warp.
__device__ int warp_row(int rows) { return static_cast<int>(threadIdx.x) / kWarp * rows; }

// Queues copies of keys and, behind them, values from `key` on, up to `end`.
template <int kRows, int kColumns>
__device__ void copy_keys(const Problem& problem, i64 first_token, int kv_head, int key, int end, u32 to) {
  const i64 at = problem.at(first_token + key, problem.query_heads + kv_head);
  const i64 values = at + static_cast<i64>(problem.kv_heads) * problem.head_dim;
  const i64 stride = problem.width();
  copy_tile<kThreads, kRows, kColumns>(to, problem.qkv + at, stride, end - key, problem.head_dim);
  copy_tile<kThreads, kRows, kColumns>(to + tile_bytes(kRows, kColumns), problem.qkv + values, stride,
                                       end - key, problem.head_dim);
}

// Queues copies of the queries of a tile and, behind them, of their dout.
template <int kRows, int kColumns>
__device__ void copy_queries(const Problem& problem, const Element* dout, i64 first_token, int head,
                             int query, u32 to) {
  const i64 token = first_token + query;
  const int count = problem.sequence - query;
  copy_tile<kThreads, kRows, kColumns>(to, problem.qkv + problem.at(token, head), problem.width(), count,
                                       problem.head_dim);
  copy_tile<kThreads, kRows, kColumns>(to + tile_bytes(kRows, kColumns), dout + problem.out_at(token, head),
                                       problem.out_width(), count, problem.head_dim);
}

// The first key that any query of a block sees, and the key from which on all see what is not behind them.
struct FirstKeys {
  int any;
  int all;
};
__device__ FirstKeys first_keys_of(const Problem& problem, const AttentionTile& tile) {
  FirstKeys keys{INT_MAX, 0};
  for (int row = lane_index(); row < kQueries; row += kWarp) {
    const int first = problem.first_key(tile.first_token, tile.first + row);
    keys.any = min(keys.any, first);
    keys.all = max(keys.all, first);
  }
  return {__reduce_min_sync(kAllLanes, keys.any), __reduce_max_sync(kAllLanes, keys.all)};
}

// Minus infinity where a query (row) does not see a key (column).
template <int kN>
__device__ void hide_unseen(const Problem& problem, const AttentionTile& tile, const FirstKeys& keys, int key,
                            Pieces<kPieceRows, kN>& scores) {
  if (key >= keys.all && key + 8 * kN - 1 <= tile.first) {
    return;
  }
#pragma unroll
  for (int m = 0; m < kPieceRows; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first + warp_row(16 * kPieceRows) + 16 * m + 8 * half + lane_index() / 4;
      const int first_key = problem.first_key(tile.first_token, query);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = key + 8 * n + lane_index() % 4 * 2 + i;
          float& score = scores[m][n][2 * half + i];
          score = column >= first_key && column <= query ? score : -INFINITY;
        }
      }
    }
  }
}

// Over the four threads that hold a row, in all of them.
__device__ float largest_in_row(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ float sum_of_row(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// The softmax of a thread's rows: the largest product of a query and a key so far, and this thread's share of
// the sum of exp(scale (product - largest)).
struct Softmax {
  float largest[kPieceRows][2];
  float sum[kPieceRows][2];
};

// Turns products of queries and keys into exp(scale (product - largest)) and shrinks earlier sums to the new
// largest. A row that has seen nothing keeps minus infinity. `factor` is scale log2(e), which is positive.
template <int kN, int kSums>
__device__ void exponentials(float factor, Pieces<kPieceRows, kN>& scores, Softmax& state,
                             Pieces<kPieceRows, kSums>& sums) {
#pragma unroll
  for (int m = 0; m < kPieceRows; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = state.largest[m][half];
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        largest = fmaxf(largest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      }
      largest = largest_in_row(largest);
      const float base = largest == -INFINITY ? 0.0F : largest * factor;
      const float shrink = fast_exp2(fmaf(state.largest[m][half], factor, -base));
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[m][n][i] = fast_exp2(fmaf(scores[m][n][i], factor, -base));
          sum += scores[m][n][i];
        }
      }
      state.sum[m][half] = fmaf(state.sum[m][half], shrink, sum);
      state.largest[m][half] = largest;
#pragma unroll
      for (int n = 0; n < kSums; ++n) {
        sums[m][n][2 * half] *= shrink;
        sums[m][n][2 * half + 1] *= shrink;
      }
    }
  }
}

// Writes a warp's rows of out and lse.
template <int kN>
__device__ void store_forward(const Problem& problem, const AttentionTile& tile, const Softmax& state,
                              const Pieces<kPieceRows, kN>& sums, Element* out, float* lse) {
  const int lane = lane_index();
  const int row = tile.first + warp_row(16 * kPieceRows);
  float factors[kPieceRows][2];
#pragma unroll
  for (int m = 0; m < kPieceRows; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + 16 * m + 8 * half + lane / 4;
      const float sum = sum_of_row(state.sum[m][half]);
      factors[m][half] = 1.0F / sum;
      if (lane % 4 == 0 && query < problem.sequence) {
        lse[problem.lse_at(tile.first_token, tile.head) + query] =
            fmaf(state.largest[m][half], problem.scale, logf(sum));
      }
    }
  }
  kernels::store_pieces(sums, factors, problem.sequence - row, problem.head_dim, problem.out_width(),
                        out + problem.out_at(tile.first_token + row, tile.head));
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attention_mma_forward_kernel(const Problem problem, Element* __restrict__ out, float* __restrict__ lse) {
  extern __shared__ __align__(256) std::byte memory[];
  constexpr u32 kStage = 2 * tile_bytes(kKeys, kColumns);
  const AttentionTile tile = query_tile<kQueries>(problem);
  const int kv_head = tile.head / problem.group();
  const int end = min(tile.first + kQueries, problem.sequence);
  const FirstKeys first_keys = first_keys_of(problem, tile);
  const u32 queries = kernels::shared_address(memory);
  const u32 stages = queries + tile_bytes(kQueries, kColumns);
  copy_tile<kThreads, kQueries, kColumns>(queries,
                                          problem.qkv + problem.at(tile.first_token + tile.first, tile.head),
                                          problem.width(), problem.sequence - tile.first, problem.head_dim);
  int key = first_keys.any / kKeys * kKeys;
  copy_keys<kKeys, kColumns>(problem, tile.first_token, kv_head, key, end, stages);
  kernels::commit_copies();
  Softmax state;
#pragma unroll
  for (int m = 0; m < kPieceRows; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.largest[m][half] = -INFINITY;
      state.sum[m][half] = 0;
    }
  }
  Pieces<kPieceRows, kColumns / 8> sums = {};
  for (u32 stage = 0; key < end; key += kKeys, stage ^= 1U) {
    if (key + kKeys < end) {
      copy_keys<kKeys, kColumns>(problem, tile.first_token, kv_head, key + kKeys, end,
                                 stages + (stage ^ 1U) * kStage);
    }
    kernels::commit_copies();
    kernels::wait_for_copies<1>();
    __syncthreads();
    const u32 keys = stages + stage * kStage;
    Pieces<kPieceRows, kKeys / 8> scores;
    multiply_rows<kPieceRows, kKeys / 8, kColumns>(queries, warp_row(16 * kPieceRows), keys, scores);
    hide_unseen(problem, tile, first_keys, key, scores);
    exponentials(problem.scale * kLog2E, scores, state, sums);
    add_weighted_rows<kPieceRows, kKeys / 8, kColumns>(scores, keys + kStage / 2, sums);
    __syncthreads();
  }
  store_forward(problem, tile, state, sums, out, lse);
}

// p of a score from lse log2(e), and ds without its scale from dout . v.
__device__ void differentiate(float factor, float lse, float delta, float& score, float& product) {
  score = fast_exp2(fmaf(score, factor, -lse));
  product = score * (product - delta);
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attention_mma_dq_kernel(const Problem problem, const Gradients gradients) {
  extern __shared__ __align__(256) std::byte memory[];
  constexpr u32 kStage = 2 * tile_bytes(kFewKeys, kColumns);
  const AttentionTile tile = query_tile<kQueries>(problem);
  const int kv_head = tile.head / problem.group();
  const int end = min(tile.first + kQueries, problem.sequence);
  const int row = warp_row(16 * kPieceRows);
  const FirstKeys first_keys = first_keys_of(problem, tile);
  const u32 queries = kernels::shared_address(memory);
  const u32 dout = queries + tile_bytes(kQueries, kColumns);
  const u32 stages = dout + tile_bytes(kQueries, kColumns);
  copy_queries<kQueries, kColumns>(problem, gradients.dout, tile.first_token, tile.head, tile.first, queries);
  int key = first_keys.any / kFewKeys * kFewKeys;
  copy_keys<kFewKeys, kColumns>(problem, tile.first_token, kv_head, key, end, stages);
  kernels::commit_copies();
  float lse[kPieceRows][2];
  float delta[kPieceRows][2];
  float factors[kPieceRows][2];
#pragma unroll
  for (int m = 0; m < kPieceRows; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first + row + 16 * m + 8 * half + lane_index() / 4;
      const i64 at = problem.lse_at(tile.first_token, tile.head) + query;
      lse[m][half] = query < problem.sequence ? gradients.lse[at] * kLog2E : 0.0F;
      delta[m][half] = query < problem.sequence ? gradients.delta[at] : 0.0F;
      factors[m][half] = problem.scale;
    }
  }
  Pieces<kPieceRows, kColumns / 8> sums = {};
  for (u32 stage = 0; key < end; key += kFewKeys, stage ^= 1U) {
    if (key + kFewKeys < end) {
      copy_keys<kFewKeys, kColumns>(problem, tile.first_token, kv_head, key + kFewKeys, end,
                                    stages + (stage ^ 1U) * kStage);
    }
    kernels::commit_copies();
    kernels::wait_for_copies<1>();
    __syncthreads();
    const u32 keys = stages + stage * kStage;
    Pieces<kPieceRows, kFewKeys / 8> scores;
    Pieces<kPieceRows, kFewKeys / 8> products;
    multiply_rows<kPieceRows, kFewKeys / 8, kColumns>(queries, row, keys, scores);
    hide_unseen(problem, tile, first_keys, key, scores);
    multiply_rows<kPieceRows, kFewKeys / 8, kColumns>(dout, row, keys + kStage / 2, products);
#pragma unroll
    for (int m = 0; m < kPieceRows; ++m) {
#pragma unroll
      for (int n = 0; n < kFewKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          differentiate(problem.scale * kLog2E, lse[m][i / 2], delta[m][i / 2], scores[m][n][i],
                        products[m][n][i]);
        }
      }
    }
    add_weighted_rows<kPieceRows, kFewKeys / 8, kColumns>(products, keys, sums);
    __syncthreads();
  }
  kernels::store_pieces(sums, factors, problem.sequence - tile.first - row, problem.head_dim, problem.width(),
                        gradients.dqkv + problem.at(tile.first_token + tile.first + row, tile.head));
}

// What a tile of passing queries brings beside its matrices.
struct PassingRows {
  int first_key[kPassing];
  float lse[kPassing];  // times log2(e)
  float delta[kPassing];
};

// A tile of passing queries, and whether all of them see all keys of the block.
struct Passing {
  int head;
  int query;
  bool whole;
};

// Moves on to the first tile from here on with a query that sees one of the block's keys; false: none is
// left. Every warp finds the same.
__device__ bool find_passing(const Problem& problem, const AttentionTile& tile, Passing& passing) {
  const int key_end = min(tile.first + kKeys, problem.sequence);
  const int query_end = problem.query_end(key_end);
  const int lane = lane_index();
  for (; passing.head < (tile.head + 1) * problem.group(); ++passing.head) {
    for (; passing.query < query_end; passing.query += kPassing) {
      const int low = problem.first_key(tile.first_token, passing.query + lane);
      const int high = problem.first_key(tile.first_token, passing.query + kWarp + lane);
      if (__any_sync(kAllLanes, static_cast<int>(min(low, high) < key_end)) != 0) {
        passing.whole = __all_sync(kAllLanes, static_cast<int>(max(low, high) <= tile.first)) != 0 &&
                        tile.first + kKeys - 1 <= passing.query;
        return true;
      }
    }
    passing.query = tile.first;
  }
  return false;
}

template <int kColumns>
__device__ void copy_passing(const Problem& problem, const Gradients& gradients, i64 first_token,
                             const Passing& passing, u32 to, PassingRows& rows) {
  copy_queries<kPassing, kColumns>(problem, gradients.dout, first_token, passing.head, passing.query, to);
  if (threadIdx.x < kPassing) {
    const int query = passing.query + static_cast<int>(threadIdx.x);
    const i64 at = problem.lse_at(first_token, passing.head) + query;
    const bool exists = query < problem.sequence;
    rows.first_key[threadIdx.x] = problem.first_key(first_token, query);
    rows.lse[threadIdx.x] = exists ? gradients.lse[at] * kLog2E : 0.0F;
    rows.delta[threadIdx.x] = exists ? gradients.delta[at] : 0.0F;
  }
}

// p and ds of a warp's keys (rows) and the passing queries (columns), in place of products of keys and
// queries and of values and dout. `key` is the warp's first.
__device__ void differentiate_passing(const PassingRows& rows, const Passing& passing, int key, float factor,
                                      Pieces<1, kPassing / 8>& scores, Pieces<1, kPassing / 8>& products) {
  const int lane = lane_index();
#pragma unroll
  for (int n = 0; n < kPassing / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 8 * n + lane % 4 * 2 + i % 2;
      const int row = key + i / 2 * 8 + lane / 4;
      const bool seen = passing.whole || (row >= rows.first_key[column] && row <= passing.query + column);
      scores[0][n][i] = seen ? scores[0][n][i] : -INFINITY;
      differentiate(factor, rows.lse[column], rows.delta[column], scores[0][n][i], products[0][n][i]);
    }
  }
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    attention_mma_dkv_kernel(const Problem problem, const Gradients gradients) {
  extern __shared__ __align__(256) std::byte memory[];
  __shared__ PassingRows rows[2];
  constexpr u32 kTile = tile_bytes(kKeys, kColumns);
  constexpr u32 kStage = 2 * tile_bytes(kPassing, kColumns);
  const AttentionTile tile = key_tile<kKeys>(problem);
  const u32 keys = kernels::shared_address(memory);
  const u32 stages = keys + 2 * kTile;
  const int row = warp_row(16);
  Passing next{tile.head * problem.group(), tile.first, false};
  bool more = find_passing(problem, tile, next);
  copy_keys<kKeys, kColumns>(problem, tile.first_token, tile.head, tile.first, problem.sequence, keys);
  if (more) {
    copy_passing<kColumns>(problem, gradients, tile.first_token, next, stages, rows[0]);
  }
  kernels::commit_copies();
  Pieces<1, kColumns / 8> dk = {};
  Pieces<1, kColumns / 8> dv = {};
  for (u32 stage = 0; more; stage ^= 1U) {
    const Passing passing = next;
    next.query += kPassing;
    more = find_passing(problem, tile, next);
    if (more) {
      copy_passing<kColumns>(problem, gradients, tile.first_token, next, stages + (stage ^ 1U) * kStage,
                             rows[stage ^ 1U]);
    }
    kernels::commit_copies();
    kernels::wait_for_copies<1>();
    __syncthreads();
    const u32 queries = stages + stage * kStage;
    const u32 dout = queries + kStage / 2;
    Pieces<1, kPassing / 8> scores;
    Pieces<1, kPassing / 8> products;
    multiply_rows<1, kPassing / 8, kColumns>(keys, row, queries, scores);
    multiply_rows<1, kPassing / 8, kColumns>(keys + kTile, row, dout, products);
    differentiate_passing(rows[stage], passing, tile.first + row, problem.scale * kLog2E, scores, products);
    add_weighted_rows<1, kPassing / 8, kColumns>(scores, dout, dv);
    add_weighted_rows<1, kPassing / 8, kColumns>(products, queries, dk);
    __syncthreads();
  }
  const int count = problem.sequence - tile.first - row;
  const i64 at = problem.at(tile.first_token + tile.first + row, problem.query_heads + tile.head);
  const i64 values = at + static_cast<i64>(problem.kv_heads) * problem.head_dim;
  const float scales[1][2] = {{problem.scale, problem.scale}};
  const float ones[1][2] = {{1, 1}};
  kernels::store_pieces(dk, scales, count, problem.head_dim, problem.width(), gradients.dqkv + at);
  kernels::store_pieces(dv, ones, count, problem.head_dim, problem.width(), gradients.dqkv + values);
}

// Raises a kernel's limit of shared memory, which is no work on a stream.
template <class Kernel>
int with_shared_memory(Kernel kernel, u32 bytes) {
  const int size = static_cast<int>(bytes);
  WYCH_CUDA_CALL(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size));
  return size;
}

bool is_aligned(const Element* matrix) { return reinterpret_cast<std::uintptr_t>(matrix) % 16 == 0; }

template <int kColumns>
void launch_forward(CUstream_st* stream, const Problem& problem, Element* out, float* lse) {
  const int bytes = with_shared_memory(attention_mma_forward_kernel<kColumns>,
                                       tile_bytes(kQueries, kColumns) + 4 * tile_bytes(kKeys, kColumns));
  const unsigned blocks = attention_blocks(problem, kQueries, problem.query_heads);
  attention_mma_forward_kernel<kColumns><<<blocks, kThreads, bytes, stream>>>(problem, out, lse);
  WYCH_CUDA_LAUNCHED();
}

template <int kColumns>
void launch_backward(CUstream_st* stream, const Problem& problem, const Gradients& gradients) {
  const int dq_bytes =
      with_shared_memory(attention_mma_dq_kernel<kColumns>,
                         2 * tile_bytes(kQueries, kColumns) + 4 * tile_bytes(kFewKeys, kColumns));
  const unsigned query_blocks = attention_blocks(problem, kQueries, problem.query_heads);
  attention_mma_dq_kernel<kColumns><<<query_blocks, kThreads, dq_bytes, stream>>>(problem, gradients);
  WYCH_CUDA_LAUNCHED();
  const int dkv_bytes =
      with_shared_memory(attention_mma_dkv_kernel<kColumns>,
                         2 * tile_bytes(kKeys, kColumns) + 4 * tile_bytes(kPassing, kColumns));
  const unsigned key_blocks = attention_blocks(problem, kKeys, problem.kv_heads);
  attention_mma_dkv_kernel<kColumns><<<key_blocks, kThreads, dkv_bytes, stream>>>(problem, gradients);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

bool attention_mma_supports(const AttentionShape& shape) {
  return shape.layout.head_dim % 8 == 0 && shape.layout.head_dim <= kMaxHeadDim && shape.scale > 0;
}

void attention_mma_forward(CUstream_st* stream, const Problem& problem, Element* out, float* lse) {
  WYCH_CHECK(is_aligned(problem.qkv) && is_aligned(out), "unaligned matrices");
  const auto launch =
      problem.head_dim <= kMaxHeadDim / 2 ? launch_forward<kMaxHeadDim / 2> : launch_forward<kMaxHeadDim>;
  launch(stream, problem, out, lse);
}

void attention_mma_backward(CUstream_st* stream, const Problem& problem, const Gradients& gradients) {
  WYCH_CHECK(is_aligned(problem.qkv) && is_aligned(gradients.dout) && is_aligned(gradients.dqkv),
             "unaligned matrices");
  const auto launch =
      problem.head_dim <= kMaxHeadDim / 2 ? launch_backward<kMaxHeadDim / 2> : launch_backward<kMaxHeadDim>;
  launch(stream, problem, gradients);
}

}  // namespace wych::ops
