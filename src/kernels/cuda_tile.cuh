// Products of tiles of 64 x 64 on plain float32 units, for kernels that keep their results in registers: of
// the rows of two matrices, and of a tile of weights and the rows of a matrix. A block of kTileThreads
// threads holds a tile as 4 x 4 elements a thread; operands pass through shared memory in slices of 16 terms.
// Every element is one chain of fused multiply-adds in the order of its terms. All threads of the block call
// together; shared memory is free again when a function returns.
#pragma once

#include "kernels/cuda_launch.cuh"

namespace wych::kernels {

inline constexpr int kTileThreads = 256;
inline constexpr int kTile = 64;
inline constexpr int kDepth = 16;          // terms of a slice
inline constexpr int kEach = 4;            // consecutive rows and columns of a thread
inline constexpr int kAcross = 16;         // threads along a row of a tile: half a warp
inline constexpr int kStride = kTile + 4;  // of rows in shared memory; whole vectors of four

// `count` rows of `columns` elements; what lies beyond counts as zero.
struct Rows {
  const float* data;
  i64 stride;
  int count;
  int columns;
};

using Slice = float[kDepth][kStride];
using Tile = float[kEach][kEach];

struct alignas(16) TileShared {
  Slice a;
  Slice b;
  float weights[kTile][kStride];  // [term, row]
};

// First row and column of this thread in a tile.
__device__ inline int own_row() { return static_cast<int>(threadIdx.x) / kAcross * kEach; }
__device__ inline int own_column() { return static_cast<int>(threadIdx.x) % kAcross * kEach; }

// sum[row, column] += sum_p a[p, row] b[p, column].
__device__ inline void multiply(const float (*a)[kStride], const Slice& b, Tile& sum) {
  const int row = own_row();
  const int column = own_column();
#pragma unroll
  for (int p = 0; p < kDepth; ++p) {
    const float4 x = *reinterpret_cast<const float4*>(&a[p][row]);
    const float4 y = *reinterpret_cast<const float4*>(&b[p][column]);
    const float xs[kEach] = {x.x, x.y, x.z, x.w};
    const float ys[kEach] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        sum[i][j] = fmaf(xs[i], ys[j], sum[i][j]);
      }
    }
  }
}

// slice[p, i] = rows[i, first + p].
__device__ inline void load_columns(const Rows& rows, int first, Slice& slice) {
#pragma unroll
  for (int n = 0; n < kTile * kDepth / kTileThreads; ++n) {
    const int index = static_cast<int>(threadIdx.x) + n * kTileThreads;
    const int p = index % kDepth;
    const int i = index / kDepth;
    const bool exists = i < rows.count && first + p < rows.columns;
    slice[p][i] = exists ? rows.data[i * rows.stride + first + p] : 0.0F;
  }
}

// slice[p, j] = rows[first + p, column + j].
__device__ inline void load_rows(const Rows& rows, int first, int column, Slice& slice) {
#pragma unroll
  for (int n = 0; n < kTile * kDepth / kTileThreads; ++n) {
    const int index = static_cast<int>(threadIdx.x) + n * kTileThreads;
    const int p = index / kTile;
    const int j = index % kTile;
    const bool exists = first + p < rows.count && column + j < rows.columns;
    slice[p][j] = exists ? rows.data[(first + p) * rows.stride + column + j] : 0.0F;
  }
}

// products[i, j] = a_i . b_j.
__device__ inline void multiply_rows(TileShared& shared, const Rows& a, const Rows& b, Tile& products) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      products[i][j] = 0;
    }
  }
  for (int first = 0; first < a.columns; first += kDepth) {
    load_columns(a, first, shared.a);
    load_columns(b, first, shared.b);
    __syncthreads();
    multiply(shared.a, shared.b, products);
    __syncthreads();
  }
}

// sums[i] += sum_j weights[i, j] rows[j], the columns of `rows` in kColumnTiles tiles.
template <int kColumnTiles>
__device__ void add_weighted_rows(TileShared& shared, const Tile& weights, const Rows& rows,
                                  Tile (&sums)[kColumnTiles]) {
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    *reinterpret_cast<float4*>(&shared.weights[own_column() + j][own_row()]) =
        make_float4(weights[0][j], weights[1][j], weights[2][j], weights[3][j]);
  }
  for (int first = 0; first < min(kTile, rows.count); first += kDepth) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      if (c * kTile < rows.columns) {
        load_rows(rows, first, c * kTile, shared.b);
        __syncthreads();
        multiply(shared.weights + first, shared.b, sums[c]);
        __syncthreads();
      }
    }
  }
}

// Writes sums[i, c] factors[i] to row i, up to `count` rows of `columns`.
template <int kColumnTiles>
__device__ void store_rows(const Tile (&sums)[kColumnTiles], const float (&factors)[kEach], int count,
                           int columns, i64 stride, float* to) {
#pragma unroll
  for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int column = c * kTile + own_column() + j;
        if (own_row() + i < count && column < columns) {
          to[(own_row() + i) * stride + column] = sums[c][i][j] * factors[i];
        }
      }
    }
  }
}

// Largest and sum over the threads that share rows, in all of them.
__device__ inline float max_across(float value) {
#pragma unroll
  for (int offset = kAcross / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}
__device__ inline float sum_across(float value) {
#pragma unroll
  for (int offset = kAcross / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}

}  // namespace wych::kernels
