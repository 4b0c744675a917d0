// Forward: one block a token, 8 bytes a float32 element.
// Gradient: tokens are sorted by (id, position) as 64-bit keys in a bitonic network, so that the tokens of an
// id lie side by side in their order, without ties and without atomics. One block an id then sums its rows of
// dy and writes its row of dweight once. A frequent id does not make one block sum alone: pieces of kPiece
// sorted keys that hold a single id are summed first, by one block each. Bytes of float32: 4 an element of dy
// and of dweight, and log2(T)^2 / 2 passes over the keys, most of them in shared memory.
#include "kernels/cuda_launch.cuh"
#include "ops/embed.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;

constexpr int kThreads = 256;
constexpr i64 kSortTile = EmbedDwScratch::kSortTile;
constexpr int kSortThreads = kSortTile / 2;
constexpr i64 kPiece = EmbedDwScratch::kPiece;
constexpr u64 kNoKey = ~u64{0};  // behind all keys

__device__ void check_token(i64 token, i64 vocabulary) {
  if (token < 0 || token >= vocabulary) {
    __trap();
  }
}

__global__ void __launch_bounds__(kThreads)
    embed_kernel(i64 vocabulary, i64 width, float scale, const float* __restrict__ weight,
                 const i32* __restrict__ tokens, float* __restrict__ y) {
  const i64 token = tokens[blockIdx.x];
  check_token(token, vocabulary);
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    y[blockIdx.x * width + j] = scale * weight[token * width + j];
  }
}

__device__ i64 id_of(u64 key) { return static_cast<i64>(key >> 32U); }
__device__ i64 token_of(u64 key) { return static_cast<i64>(key & 0xffffffffU); }

// Compares two keys `stride` apart in a step of the sorting network: runs of `size` keys become sorted, every
// other one downwards. Pair `pair` of the keys from number `first` on.
__device__ void order_pair(u64* keys, i64 first, i64 pair, i64 size, i64 stride) {
  const i64 low = pair & (stride - 1);
  const i64 i = 2 * (pair - low) + low;
  const u64 a = keys[i];
  const u64 b = keys[i + stride];
  const bool upwards = ((first + i) & size) == 0;
  if ((a > b) == upwards) {
    keys[i] = b;
    keys[i + stride] = a;
  }
}

// All steps of one size within a tile in shared memory, from stride `stride` down.
__device__ void order_tile(u64* tile, i64 first, i64 size, i64 stride) {
  for (; stride > 0; stride /= 2) {
    order_pair(tile, first, threadIdx.x, size, stride);
    __syncthreads();
  }
}

// Makes the keys and sorts every tile of them.
__global__ void __launch_bounds__(kSortThreads)
    embed_sort_tiles_kernel(i64 num_tokens, i64 vocabulary, const i32* __restrict__ tokens,
                            u64* __restrict__ keys) {
  __shared__ u64 tile[kSortTile];
  const i64 first = blockIdx.x * kSortTile;
  for (i64 i = threadIdx.x; i < kSortTile; i += kSortThreads) {
    const i64 t = first + i;
    tile[i] = kNoKey;
    if (t < num_tokens) {
      check_token(tokens[t], vocabulary);
      tile[i] = static_cast<u64>(tokens[t]) << 32U | static_cast<u64>(t);
    }
  }
  __syncthreads();
  for (i64 size = 2; size <= kSortTile; size *= 2) {
    order_tile(tile, first, size, size / 2);
  }
  for (i64 i = threadIdx.x; i < kSortTile; i += kSortThreads) {
    keys[first + i] = tile[i];
  }
}

// A step whose stride exceeds a tile.
__global__ void __launch_bounds__(kSortThreads) embed_sort_step_kernel(i64 size, i64 stride, u64* keys) {
  order_pair(keys, 0, static_cast<i64>(blockIdx.x) * kSortThreads + threadIdx.x, size, stride);
}

// The remaining steps of a size.
__global__ void __launch_bounds__(kSortThreads) embed_sort_merge_kernel(i64 size, u64* keys) {
  __shared__ u64 tile[kSortTile];
  const i64 first = blockIdx.x * kSortTile;
  for (i64 i = threadIdx.x; i < kSortTile; i += kSortThreads) {
    tile[i] = keys[first + i];
  }
  __syncthreads();
  order_tile(tile, first, size, kSortTile / 2);
  for (i64 i = threadIdx.x; i < kSortTile; i += kSortThreads) {
    keys[first + i] = tile[i];
  }
}

// starts[v] = the number of keys with an id below v, for v in [0, vocabulary].
__global__ void __launch_bounds__(kThreads)
    embed_starts_kernel(i64 num_tokens, i64 vocabulary, const u64* __restrict__ keys,
                        i32* __restrict__ starts) {
  const i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (i > num_tokens) {
    return;
  }
  const i64 before = i == 0 ? -1 : id_of(keys[i - 1]);
  const i64 here = i == num_tokens ? vocabulary : id_of(keys[i]);
  for (i64 v = before + 1; v <= here; ++v) {
    starts[v] = static_cast<i32>(i);
  }
}

// Adds column j of the rows of dy at the sorted keys [begin, end) to `sum`, in order.
__device__ float add_rows(const u64* __restrict__ keys, const float* __restrict__ dy, i64 width, i64 j,
                          i64 begin, i64 end, float sum) {
#pragma unroll 4
  for (i64 i = begin; i < end; ++i) {
    sum += dy[token_of(keys[i]) * width + j];
  }
  return sum;
}

// sums[piece, d], written where all keys of a piece have one id.
__global__ void __launch_bounds__(kThreads)
    embed_dw_pieces_kernel(i64 width, const u64* __restrict__ keys, const float* __restrict__ dy,
                           float* __restrict__ sums) {
  const i64 begin = blockIdx.x * kPiece;
  if (id_of(keys[begin]) != id_of(keys[begin + kPiece - 1])) {
    return;
  }
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    sums[blockIdx.x * width + j] = add_rows(keys, dy, width, j, begin, begin + kPiece, 0.0F);
  }
}

struct EmbedDwParams {
  i64 width;
  float scale;
  const u64* keys;
  const i32* starts;
  const float* sums;
  const float* dy;
  bool accumulate;
  float* dweight;
};

__global__ void __launch_bounds__(kThreads) embed_dw_kernel(const EmbedDwParams params) {
  const i64 width = params.width;
  const i64 begin = params.starts[blockIdx.x];
  const i64 end = params.starts[blockIdx.x + 1];
  if (begin == end && params.accumulate) {
    return;
  }
  // Whole pieces, with loose keys on both sides.
  const i64 first_piece = ceil_div(begin, kPiece);
  const i64 end_piece = end / kPiece;
  const i64 pieces_begin = first_piece < end_piece ? first_piece * kPiece : end;
  const i64 pieces_end = first_piece < end_piece ? end_piece * kPiece : end;
  for (i64 j = threadIdx.x; j < width; j += kThreads) {
    float sum = add_rows(params.keys, params.dy, width, j, begin, pieces_begin, 0.0F);
    for (i64 piece = first_piece; piece < end_piece; ++piece) {
      sum += params.sums[piece * width + j];
    }
    sum = params.scale * add_rows(params.keys, params.dy, width, j, pieces_end, end, sum);
    float& to = params.dweight[blockIdx.x * width + j];
    to = params.accumulate ? to + sum : sum;
  }
}

void sort_keys(CUstream_st* stream, i64 num_tokens, i64 vocabulary, const i32* tokens, i64 num_keys,
               u64* keys) {
  const unsigned tiles = blocks_for(num_keys, kSortTile);
  embed_sort_tiles_kernel<<<tiles, kSortThreads, 0, stream>>>(num_tokens, vocabulary, tokens, keys);
  WYCH_CUDA_LAUNCHED();
  for (i64 size = 2 * kSortTile; size <= num_keys; size *= 2) {
    for (i64 stride = size / 2; stride >= kSortTile; stride /= 2) {
      embed_sort_step_kernel<<<tiles, kSortThreads, 0, stream>>>(size, stride, keys);
      WYCH_CUDA_LAUNCHED();
    }
    embed_sort_merge_kernel<<<tiles, kSortThreads, 0, stream>>>(size, keys);
    WYCH_CUDA_LAUNCHED();
  }
}

}  // namespace

void Embed::launch_cuda(const ir::CudaContext& context) const {
  const i64 num_tokens = context.input(1).dim(0);
  if (num_tokens == 0) {
    return;
  }
  embed_kernel<<<blocks_for(num_tokens, 1), kThreads, 0, context.stream>>>(
      context.input(0).dim(0), context.input(0).dim(1), static_cast<float>(scale_),
      context.input(0).as<float>(), context.input(1).as<i32>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

void EmbedDw::launch_cuda(const ir::CudaContext& context) const {
  const i64 num_tokens = context.input(0).dim(0);
  const i64 width = context.output(0).dim(1);
  if (context.output(0).elements() == 0) {
    return;
  }
  const float* dy = context.input(1).as<float>();
  const EmbedDwScratch scratch(num_tokens, vocabulary_, width);
  auto* keys = reinterpret_cast<u64*>(context.workspace);
  auto* starts = reinterpret_cast<i32*>(context.workspace + scratch.starts);
  auto* sums = reinterpret_cast<float*>(context.workspace + scratch.sums);
  sort_keys(context.stream, num_tokens, vocabulary_, context.input(0).as<i32>(), scratch.num_keys, keys);
  embed_starts_kernel<<<blocks_for(num_tokens + 1, kThreads), kThreads, 0, context.stream>>>(
      num_tokens, vocabulary_, keys, starts);
  WYCH_CUDA_LAUNCHED();
  if (scratch.num_pieces > 0) {
    embed_dw_pieces_kernel<<<blocks_for(scratch.num_pieces, 1), kThreads, 0, context.stream>>>(width, keys,
                                                                                               dy, sums);
    WYCH_CUDA_LAUNCHED();
  }
  const EmbedDwParams params{width,
                             static_cast<float>(scale_),
                             keys,
                             starts,
                             sums,
                             dy,
                             context.accumulate,
                             context.output(0).as<float>()};
  embed_dw_kernel<<<blocks_for(vocabulary_, 1), kThreads, 0, context.stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
