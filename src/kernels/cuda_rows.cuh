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
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Pack {
  T values[kWidth];
};
template <class T>
inline constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

// Whether 16 bytes can be loaded from the address at once.
inline bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

// Whether matrices of `width` columns at these addresses consist of whole, aligned packs of kPackWidth.
template <class T>
bool are_packs(i64 width, std::initializer_list<const T*> matrices) {
  bool aligned = width % kPackWidth<T> == 0;
  for (const T* matrix : matrices) {
    aligned = aligned && is_aligned(matrix);
  }
  return aligned;
}

// Neighbours in float32, from an address that is aligned where they are four or more.
template <int kWidth>
__device__ void load_floats(const float* from, float (&to)[kWidth]) {
  if constexpr (kWidth % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      to[i] = four.x;
      to[i + 1] = four.y;
      to[i + 2] = four.z;
      to[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      to[i] = from[i];
    }
  }
}

// The values, rounded to T, as a pack.
template <class T, int kWidth>
__device__ Pack<T, kWidth> rounded(const float (&values)[kWidth]) {
  Pack<T, kWidth> pack;
  if constexpr (sizeof(T) == sizeof(__nv_bfloat16) && kWidth % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
      pack.values[i] = pair.x;
      pack.values[i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      store_float(&pack.values[i], values[i]);
    }
  }
  return pack;
}

}  // namespace wych::kernels
