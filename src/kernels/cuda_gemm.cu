// One block computes a tile of C (cuda_tile.cuh), A and B through shared memory in slices of 16 terms, as
// float32 whatever they are in memory. Plain float32 units. Bytes: every tile reads its rows of A and columns
// of B once.
#include "kernels/cuda_gemm.h"

#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_tile.cuh"

namespace wych::kernels {
namespace {

// Vectors of terms: rows of op(A), columns of op(B). One of the strides is 1.
template <class T>
struct Vectors {
  const T* data;
  i64 stride;
  i64 term_stride;

  // These from the index-th on.
  __device__ Vectors from(i64 index) const { return {data + index * stride, stride, term_stride}; }
};

struct alignas(16) Slices {
  Slice a;
  Slice b;
};

// slice[p, i] = term first + p of vector i; what lies beyond is zero.
template <class T>
__device__ void load_slice(const Vectors<T>& vectors, i64 count, i64 first, i64 terms, Slice& slice) {
  // The index that runs along memory runs along the threads.
  const bool terms_adjoin = vectors.term_stride == 1;
#pragma unroll
  for (int n = 0; n < kTile * kDepth / kTileThreads; ++n) {
    const int index = static_cast<int>(threadIdx.x) + n * kTileThreads;
    const int p = terms_adjoin ? index % kDepth : index / kTile;
    const int i = terms_adjoin ? index / kDepth : index % kTile;
    slice[p][i] = i < count && first + p < terms
                      ? load_float(vectors.data + i * vectors.stride + (first + p) * vectors.term_stride)
                      : 0.0F;
  }
}

// sum = A B for one tile: `rows` vectors of A and `columns` of B, k terms each.
template <class T>
__device__ void multiply_tile(Slices& shared, const Vectors<T>& a, const Vectors<T>& b, i64 rows, i64 columns,
                              i64 k, Tile& sum) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      sum[i][j] = 0;
    }
  }
  for (i64 first = 0; first < k; first += kDepth) {
    load_slice(a, rows, first, k, shared.a);
    load_slice(b, columns, first, k, shared.b);
    __syncthreads();
    multiply(shared.a, shared.b, sum);
    __syncthreads();
  }
}

template <class Out>
__device__ void store_tile(const Tile& sum, i64 rows, i64 columns, bool accumulate, Out* c, i64 ldc) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (own_row() + i < rows && own_column() + j < columns) {
        Out* to = c + (own_row() + i) * ldc + own_column() + j;
        store_float(to, accumulate ? load_float(to) + sum[i][j] : sum[i][j]);
      }
    }
  }
}

template <class T, class Out>
struct GemmParams {
  i64 m;
  i64 n;
  i64 k;
  Vectors<T> a;
  Vectors<T> b;
  bool accumulate;
  Out* c;
  i64 ldc;
};

template <class T, class Out>
__global__ void __launch_bounds__(kTileThreads) gemm_kernel(const GemmParams<T, Out> params) {
  __shared__ Slices shared;
  const i64 i = static_cast<i64>(blockIdx.x) * kTile;
  const i64 j = static_cast<i64>(blockIdx.y) * kTile;
  Tile sum;
  multiply_tile(shared, params.a.from(i), params.b.from(j), params.m - i, params.n - j, params.k, sum);
  store_tile(sum, params.m - i, params.n - j, params.accumulate, params.c + i * params.ldc + j, params.ldc);
}

template <class T>
struct GroupedParams {
  i64 groups;
  const i32* offsets;
  i64 n;
  i64 k;
  const T* x;
  const T* w;
  bool trans_b;
  T* y;
};

// Tiles are numbered through all experts' rows. Expert e's begin at offsets[e] / kTile + e, which leaves each
// at least as many numbers as it has tiles and needs no sums: a block finds its expert by bisection.
template <class T>
__global__ void __launch_bounds__(kTileThreads) grouped_kernel(const GroupedParams<T> params) {
  __shared__ Slices shared;
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
  const T* w = params.w + expert * params.n * params.k;
  const Vectors<T> a{params.x + row * params.k, params.k, 1};
  const Vectors<T> b{w, params.trans_b ? params.k : 1, params.trans_b ? 1 : params.n};
  Tile sum;
  multiply_tile(shared, a, b.from(j), rows, params.n - j, params.k, sum);
  store_tile(sum, rows, params.n - j, false, params.y + row * params.n + j, params.n);
}

template <class T>
struct GroupedDwParams {
  const i32* offsets;
  i64 m;
  i64 n;
  const T* dy;
  const T* x;
  bool accumulate;
  float* dw;
};

template <class T>
__global__ void __launch_bounds__(kTileThreads) grouped_dw_kernel(const GroupedDwParams<T> params) {
  __shared__ Slices shared;
  const i64 expert = blockIdx.z;
  const i64 i = static_cast<i64>(blockIdx.x) * kTile;
  const i64 j = static_cast<i64>(blockIdx.y) * kTile;
  const i64 row = params.offsets[expert];
  const i64 rows = params.offsets[expert + 1] - row;
  const Vectors<T> a{params.dy + row * params.m, 1, params.m};
  const Vectors<T> b{params.x + row * params.n, 1, params.n};
  Tile sum;
  multiply_tile(shared, a.from(i), b.from(j), params.m - i, params.n - j, rows, sum);
  store_tile(sum, params.m - i, params.n - j, params.accumulate,
             params.dw + (expert * params.m + i) * params.n + j, params.n);
}

}  // namespace

template <class T, class Out>
void cuda_gemm(CUstream_st* stream, bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const T* a, i64 lda,
               const T* b, i64 ldb, bool accumulate, Out* c, i64 ldc) {
  if (m == 0 || n == 0) {
    return;
  }
  const dim3 grid(blocks_for(m, kTile), blocks_for(n, kTile));
  const Vectors<T> rows{a, trans_a ? 1 : lda, trans_a ? lda : 1};
  const Vectors<T> columns{b, trans_b ? ldb : 1, trans_b ? 1 : ldb};
  const GemmParams<T, Out> params{m, n, k, rows, columns, accumulate, c, ldc};
  gemm_kernel<<<grid, kTileThreads, 0, stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

template <class T>
void cuda_grouped_gemm(CUstream_st* stream, bool trans_b, i64 groups, const i32* offsets, i64 rows, i64 n,
                       i64 k, const T* x, const T* w, T* y) {
  if (groups == 0 || rows == 0 || n == 0) {
    return;
  }
  const dim3 grid(blocks_for(rows, kTile) + static_cast<unsigned>(groups), blocks_for(n, kTile));
  const GroupedParams<T> params{groups, offsets, n, k, x, w, trans_b, y};
  grouped_kernel<<<grid, kTileThreads, 0, stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

template <class T>
void cuda_grouped_dw(CUstream_st* stream, i64 groups, const i32* offsets, i64 m, i64 n, const T* dy,
                     const T* x, bool accumulate, float* dw) {
  if (groups == 0 || m == 0 || n == 0) {
    return;
  }
  const dim3 grid(blocks_for(m, kTile), blocks_for(n, kTile), static_cast<unsigned>(groups));
  const GroupedDwParams<T> params{offsets, m, n, dy, x, accumulate, dw};
  grouped_dw_kernel<<<grid, kTileThreads, 0, stream>>>(params);
  WYCH_CUDA_LAUNCHED();
}

template void cuda_gemm(CUstream_st*, bool, bool, i64, i64, i64, const float*, i64, const float*, i64, bool,
                        float*, i64);
template void cuda_gemm(CUstream_st*, bool, bool, i64, i64, i64, const __nv_bfloat16*, i64,
                        const __nv_bfloat16*, i64, bool, float*, i64);
template void cuda_gemm(CUstream_st*, bool, bool, i64, i64, i64, const __nv_bfloat16*, i64,
                        const __nv_bfloat16*, i64, bool, __nv_bfloat16*, i64);
template void cuda_grouped_gemm(CUstream_st*, bool, i64, const i32*, i64, i64, i64, const float*,
                                const float*, float*);
template void cuda_grouped_gemm(CUstream_st*, bool, i64, const i32*, i64, i64, i64, const __nv_bfloat16*,
                                const __nv_bfloat16*, __nv_bfloat16*);
template void cuda_grouped_dw(CUstream_st*, i64, const i32*, i64, i64, const float*, const float*, bool,
                              float*);
template void cuda_grouped_dw(CUstream_st*, i64, const i32*, i64, i64, const __nv_bfloat16*,
                              const __nv_bfloat16*, bool, float*);

}  // namespace wych::kernels
