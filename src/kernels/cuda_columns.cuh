// Sums of columns over the parts that blocks of an earlier launch left, and sums of several values over a
// block: both in a fixed order, without atomics.
#pragma once

#include "kernels/cuda_launch.cuh"

namespace wych::kernels {

// values[i] becomes its sum over the block's kThreads threads, in every thread. `scratch` is shared memory,
// free again when all have returned.
template <int kThreads, int kCount>
__device__ void block_sums(float (&values)[kCount], float (&scratch)[kCount][kThreads / kWarp]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = warp_sum(values[i]);
    if (threadIdx.x % kWarp == 0) {
      scratch[i][threadIdx.x / kWarp] = values[i];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / kWarp; ++warp) {
      values[i] += scratch[i][warp];
    }
  }
  __syncthreads();
}

// sums[j] (+)= the sum of partial[chunk * stride + repeat * columns + j] over chunks and repeats.
struct ColumnSums {
  i64 chunks;
  i64 stride;
  int repeats;
  int columns;
  const float* partial;
  bool accumulate;
  float* sums;
};

inline constexpr int kColumnSumRows = 32;

// A block has kWarp columns; its rows of threads share the chunks.
static __global__ void __launch_bounds__(kWarp* kColumnSumRows) sum_columns_kernel(const ColumnSums params) {
  __shared__ float shares[kColumnSumRows][kWarp];
  const i64 j = static_cast<i64>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (j < params.columns) {
#pragma unroll 4
    for (i64 chunk = threadIdx.y; chunk < params.chunks; chunk += kColumnSumRows) {
      for (int repeat = 0; repeat < params.repeats; ++repeat) {
        sum += params.partial[chunk * params.stride + static_cast<i64>(repeat) * params.columns + j];
      }
    }
  }
  shares[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && j < params.columns) {
    sum = 0;
#pragma unroll
    for (int row = 0; row < kColumnSumRows; ++row) {
      sum += shares[row][threadIdx.x];
    }
    params.sums[j] = params.accumulate ? params.sums[j] + sum : sum;
  }
}

inline void launch_sum_columns(CUstream_st* stream, const ColumnSums& params) {
  const unsigned blocks = blocks_for(params.columns, kWarp);
  if (blocks > 0) {
    sum_columns_kernel<<<blocks, dim3(kWarp, kColumnSumRows), 0, stream>>>(params);
    WYCH_CUDA_LAUNCHED();
  }
}

}  // namespace wych::kernels
