// One warp a row, k rounds: the best of the columns that come after the last one chosen. The order is total,
// so nothing is marked or removed, and NaN needs no case of its own. The row is read k times, from the cache
// but the first time: 4 bytes a score, 8 a route.
#include <limits>

#include "kernels/cuda_rows.cuh"
#include "ops/top_k.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;

struct Candidate {
  float score;
  i32 column;
};

// The order of top_k.h: larger first, NaN below everything, equal scores by column.
__device__ bool before(const Candidate& a, const Candidate& b) {
  if (a.score > b.score || b.score > a.score) {
    return a.score > b.score;
  }
  const bool a_nan = isnan(a.score);
  const bool b_nan = isnan(b.score);
  return a_nan != b_nan ? b_nan : a.column < b.column;
}

__device__ Candidate first_of_warp(Candidate best) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Candidate other = {__shfl_xor_sync(0xffffffffU, best.score, offset),
                             __shfl_xor_sync(0xffffffffU, best.column, offset)};
    best = before(other, best) ? other : best;
  }
  return best;
}

__global__ void __launch_bounds__(kRowThreads)
    top_k_kernel(i64 rows, i64 experts, i64 k, const float* __restrict__ scores, float* __restrict__ values,
                 i32* __restrict__ indices) {
  const i64 row = kernels::warp_row();
  if (row >= rows) {
    return;
  }
  constexpr Candidate kBeforeAll = {std::numeric_limits<float>::infinity(), -1};
  constexpr Candidate kAfterAll = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<i32>::max()};
  Candidate last = kBeforeAll;
  for (i64 j = 0; j < k; ++j) {
    Candidate best = kAfterAll;
    for (i64 e = lane_index(); e < experts; e += kWarp) {
      const Candidate candidate = {scores[row * experts + e], static_cast<i32>(e)};
      if (before(last, candidate) && before(candidate, best)) {
        best = candidate;
      }
    }
    last = first_of_warp(best);
    if (lane_index() == 0) {
      values[row * k + j] = last.score;
      indices[row * k + j] = last.column;
    }
  }
}

__global__ void __launch_bounds__(kRowThreads)
    top_k_dx_kernel(i64 rows, i64 experts, i64 k, const float* __restrict__ dvalues,
                    const i32* __restrict__ indices, float* dscores) {
  const i64 row = kernels::warp_row();
  if (row >= rows) {
    return;
  }
  float* to = dscores + row * experts;
  for (i64 e = lane_index(); e < experts; e += kWarp) {
    to[e] = 0;
  }
  __syncwarp();  // the zeros are there before the values, whose columns are distinct
  for (i64 j = lane_index(); j < k; j += kWarp) {
    to[indices[row * k + j]] = dvalues[row * k + j];
  }
}

}  // namespace

void TopK::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  top_k_kernel<<<blocks_for(rows, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      rows, context.input(0).dim(1), k_, context.input(0).as<float>(), context.output(0).as<float>(),
      context.output(1).as<i32>());
  WYCH_CUDA_LAUNCHED();
}

void TopKDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 rows = context.input(0).dim(0);
  if (rows == 0) {
    return;
  }
  top_k_dx_kernel<<<blocks_for(rows, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      rows, experts_, context.input(0).dim(1), context.input(0).as<float>(), context.input(1).as<i32>(),
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
