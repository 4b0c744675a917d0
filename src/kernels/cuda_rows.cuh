// Kernels that give each row to one warp, and rows moved in packs of 16 bytes where they allow it. How a row
// is cut depends on its width alone, so a sum within it has one order.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda_launch.cuh"

namespace wych::kernels {

inline constexpr int kRowThreads = 256;
inline constexpr int kRowsPerBlock = kRowThreads / kWarp;

// The row of the calling warp in a grid of blocks_for(rows, kRowsPerBlock); may lie past the last one.
__device__ inline i64 warp_row() {
  return static_cast<i64>(blockIdx.x) * kRowsPerBlock + static_cast<i64>(threadIdx.x / kWarp);
}

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x % kWarp); }

// The sum of `value` over this and all lower lanes.
__device__ inline i32 warp_inclusive_sum(i32 value) {
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const i32 lower = __shfl_up_sync(0xffffffffU, value, offset);
    value += lane_index() >= offset ? lower : 0;
  }
  return value;
}

// The largest of row[0, n), in every lane; -inf if all are NaN.
__device__ inline float warp_largest(const float* row, i64 n) {
  float largest = -INFINITY;
  for (i64 i = lane_index(); i < n; i += kWarp) {
    largest = fmaxf(largest, row[i]);
  }
  return warp_max(largest);
}

// sum_i exp(row[i] - largest) over i in [0, n), in every lane. NaN if one of them is, or if `largest` is
// infinite.
__device__ inline float warp_exp_sum(const float* row, i64 n, float largest) {
  float sum = 0;
  for (i64 i = lane_index(); i < n; i += kWarp) {
    sum += expf(row[i] - largest);
  }
  return warp_sum(sum);
}

// Neighbours of a row that move together.
template <int kWidth>
struct alignas(kWidth * sizeof(float)) Pack {
  float values[kWidth];
};
inline constexpr int kPackWidth = 4;

// Whether matrices of `width` columns at these addresses consist of whole, aligned packs of kPackWidth.
inline bool are_packs(i64 width, std::initializer_list<const float*> matrices) {
  bool aligned = width % kPackWidth == 0;
  for (const float* matrix : matrices) {
    aligned = aligned && reinterpret_cast<std::uintptr_t>(matrix) % sizeof(Pack<kPackWidth>) == 0;
  }
  return aligned;
}

// rows[r] = weights[route] x[route / k] with route = route_of_row[r], zeros where that is -1, for
// r < *used_rows; later rows are left alone. Without weights (null) a copy.
struct GatherRoutedParams {
  i64 width;     // of a row
  i64 capacity;  // rows of `rows`, at least *used_rows
  i64 k;
  const i32* used_rows;
  const i32* route_of_row;
  const float* weights;
  const float* x;
  float* rows;
};

template <int kWidth, bool kWeighted>
__global__ void __launch_bounds__(kRowThreads) gather_routed_kernel(const GatherRoutedParams params) {
  const i64 row = warp_row();
  if (row >= *params.used_rows) {
    return;
  }
  const i64 packs = params.width / kWidth;
  auto* to = reinterpret_cast<Pack<kWidth>*>(params.rows) + row * packs;
  const i64 route = params.route_of_row[row];
  if (route < 0) {
    for (i64 i = lane_index(); i < packs; i += kWarp) {
      to[i] = Pack<kWidth>{};
    }
    return;
  }
  const auto* from = reinterpret_cast<const Pack<kWidth>*>(params.x) + route / params.k * packs;
  const float weight = kWeighted ? params.weights[route] : 1.0F;
  for (i64 i = lane_index(); i < packs; i += kWarp) {
    Pack<kWidth> pack = from[i];
    if constexpr (kWeighted) {
#pragma unroll
      for (float& value : pack.values) {
        value = weight * value;
      }
    }
    to[i] = pack;
  }
}

template <bool kWeighted>
void launch_gather_routed(CUstream_st* stream, const GatherRoutedParams& params) {
  const unsigned blocks = blocks_for(params.capacity, kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  if (are_packs(params.width, {params.x, params.rows})) {
    gather_routed_kernel<kPackWidth, kWeighted><<<blocks, kRowThreads, 0, stream>>>(params);
  } else {
    gather_routed_kernel<1, kWeighted><<<blocks, kRowThreads, 0, stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::kernels
