// One block computes a 64 x 64 tile of C: 256 threads of 4 x 4 elements each, A and B through shared memory
// in slices of 16 terms. Plain float32 units: about a fifth of their peak. Bytes: every tile reads its rows
// of A and columns of B once.
#include "kernels/cuda_gemm.h"

#include "kernels/cuda_launch.cuh"

namespace wych::kernels {
namespace {

constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kThreads = 256;
constexpr int kEach = 4;  // rows and columns of a thread, kTile / 16 apart

struct Matrix {
  const float* data;
  i64 row_stride;
  i64 column_stride;
};

struct Shared {
  float a[kDepth][kTile + 1];
  float b[kDepth][kTile + 1];
};

// Adds A[rows, k] B[k, columns] of one tile to `sum`; what lies beyond is zero.
__device__ void multiply_tile(Shared& shared, const Matrix& a, const Matrix& b, i64 rows, i64 columns, i64 k,
                              float (&sum)[kEach][kEach]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / 16;
  const int column = thread % 16;
  for (i64 first = 0; first < k; first += kDepth) {
#pragma unroll
    for (int i = 0; i < kTile * kDepth / kThreads; ++i) {
      const int index = thread + i * kThreads;
      // The index that runs along memory runs along the threads.
      const int a_p = a.column_stride == 1 ? index % kDepth : index / kTile;
      const int a_row = a.column_stride == 1 ? index / kDepth : index % kTile;
      shared.a[a_p][a_row] = a_row < rows && first + a_p < k
                                 ? a.data[a_row * a.row_stride + (first + a_p) * a.column_stride]
                                 : 0.0F;
      const int b_p = b.row_stride == 1 ? index % kDepth : index / kTile;
      const int b_column = b.row_stride == 1 ? index / kDepth : index % kTile;
      shared.b[b_p][b_column] = b_column < columns && first + b_p < k
                                    ? b.data[(first + b_p) * b.row_stride + b_column * b.column_stride]
                                    : 0.0F;
    }
    __syncthreads();
    const int depth = static_cast<int>(k - first < kDepth ? k - first : kDepth);
    for (int p = 0; p < depth; ++p) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          sum[i][j] = fmaf(shared.a[p][row + 16 * i], shared.b[p][column + 16 * j], sum[i][j]);
        }
      }
    }
    __syncthreads();
  }
}

__device__ void store_tile(const float (&sum)[kEach][kEach], i64 rows, i64 columns, bool accumulate, float* c,
                           i64 ldc) {
  const int row = static_cast<int>(threadIdx.x) / 16;
  const int column = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (row + 16 * i < rows && column + 16 * j < columns) {
        float& to = c[(row + 16 * i) * ldc + column + 16 * j];
        to = accumulate ? to + sum[i][j] : sum[i][j];
      }
    }
  }
}

struct GemmParams {
  i64 m;
  i64 n;
  i64 k;
  Matrix a;
  Matrix b;
  bool accumulate;
  float* c;
  i64 ldc;
};

__global__ void __launch_bounds__(kThreads) gemm_f32_kernel(const GemmParams params) {
  __shared__ Shared shared;
  const i64 i = static_cast<i64>(blockIdx.x) * kTile;
  const i64 j = static_cast<i64>(blockIdx.y) * kTile;
  float sum[kEach][kEach] = {};
  const Matrix a{params.a.data + i * params.a.row_stride, params.a.row_stride, params.a.column_stride};
  const Matrix b{params.b.data + j * params.b.column_stride, params.b.row_stride, params.b.column_stride};
  multiply_tile(shared, a, b, params.m - i, params.n - j, params.k, sum);
  store_tile(sum, params.m - i, params.n - j, params.accumulate, params.c + i * params.ldc + j, params.ldc);
}

struct GroupedParams {
  i64 groups;
  const i32* offsets;
  i64 n;
  i64 k;
  const float* x;
  const float* w;
  bool trans_b;
  float* y;
};

// Tiles are numbered through all experts' rows. Expert e's begin at offsets[e] / kTile + e, which leaves each
// at least as many numbers as it has tiles and needs no sums: a block finds its expert by bisection.
__global__ void __launch_bounds__(kThreads) grouped_f32_kernel(const GroupedParams params) {
  __shared__ Shared shared;
  i64 expert = 0;
  for (i64 end = params.groups; end - expert > 1;) {
    const i64 middle = (expert + end) / 2;
    if (params.offsets[middle] / kTile + middle <= blockIdx.x) {
      expert = middle;
    } else {
      end = middle;
    }
  }
  const i64 tile = blockIdx.x - (params.offsets[expert] / kTile + expert);
  const i64 row = params.offsets[expert] + tile * kTile;
  if (row >= params.offsets[expert + 1]) {
    return;
  }
  const i64 rows = params.offsets[expert + 1] - row;
  const i64 j = static_cast<i64>(blockIdx.y) * kTile;
  const float* w = params.w + expert * params.n * params.k;
  const Matrix a{params.x + row * params.k, params.k, 1};
  const Matrix b = params.trans_b ? Matrix{w + j * params.k, 1, params.k} : Matrix{w + j, params.n, 1};
  float sum[kEach][kEach] = {};
  multiply_tile(shared, a, b, rows, params.n - j, params.k, sum);
  store_tile(sum, rows, params.n - j, false, params.y + row * params.n + j, params.n);
}

struct GroupedDwParams {
  const i32* offsets;
  i64 m;
  i64 n;
  const float* dy;
  const float* x;
  bool accumulate;
  float* dw;
};

__global__ void __launch_bounds__(kThreads) grouped_dw_f32_kernel(const GroupedDwParams params) {
  __shared__ Shared shared;
  const i64 expert = blockIdx.z;
  const i64 i = static_cast<i64>(blockIdx.x) * kTile;
  const i64 j = static_cast<i64>(blockIdx.y) * kTile;
  const i64 row = params.offsets[expert];
  const i64 rows = params.offsets[expert + 1] - row;
  const Matrix a{params.dy + row * params.m + i, 1, params.m};
  const Matrix b{params.x + row * params.n + j, params.n, 1};
  float sum[kEach][kEach] = {};
  multiply_tile(shared, a, b, params.m - i, params.n - j, rows, sum);
  store_tile(sum, params.m - i, params.n - j, params.accumulate,
             params.dw + (expert * params.m + i) * params.n + j, params.n);
}

}  // namespace

void cuda_gemm_f32(CUstream_st* stream, bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const float* a,
                   i64 lda, const float* b, i64 ldb, bool accumulate, float* c, i64 ldc) {
  if (m == 0 || n == 0) {
    return;
  }
  const dim3 grid(blocks_for(m, kTile), blocks_for(n, kTile));
  const Matrix op_a = trans_a ? Matrix{a, 1, lda} : Matrix{a, lda, 1};
  const Matrix op_b = trans_b ? Matrix{b, 1, ldb} : Matrix{b, ldb, 1};
  const GemmParams params{m, n, k, op_a, op_b, accumulate, c, ldc};
  gemm_f32_kernel<<<grid, kThreads, 0, stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

void cuda_grouped_gemm_f32(CUstream_st* stream, bool trans_b, i64 groups, const i32* offsets, i64 rows, i64 n,
                           i64 k, const float* x, const float* w, float* y) {
  if (groups == 0 || rows == 0 || n == 0) {
    return;
  }
  const dim3 grid(blocks_for(rows, kTile) + static_cast<unsigned>(groups), blocks_for(n, kTile));
  const GroupedParams params{groups, offsets, n, k, x, w, trans_b, y};
  grouped_f32_kernel<<<grid, kThreads, 0, stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

void cuda_grouped_dw_f32(CUstream_st* stream, i64 groups, const i32* offsets, i64 m, i64 n, const float* dy,
                         const float* x, bool accumulate, float* dw) {
  if (groups == 0 || m == 0 || n == 0) {
    return;
  }
  const dim3 grid(blocks_for(m, kTile), blocks_for(n, kTile), static_cast<unsigned>(groups));
  const GroupedDwParams params{offsets, m, n, dy, x, accumulate, dw};
  grouped_dw_f32_kernel<<<grid, kThreads, 0, stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::kernels
