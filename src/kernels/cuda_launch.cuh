// What kernels share: extents of a launch, sums over a block in a fixed order, types by dtype. Included by
// .cu files only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "base/check.h"
#include "base/dtype.h"
#include "base/types.h"
#include "device/cuda_check.h"

namespace wych::kernels {

inline constexpr int kWarp = 32;

// Blocks that cover `count` elements with `per_block` each; CHECKed to fit a grid's first extent.
inline unsigned blocks_for(i64 count, i64 per_block) {
  const i64 blocks = ceil_div(count, per_block);
  WYCH_CHECK(blocks <= 0x7fffffff, "{} blocks", blocks);
  return static_cast<unsigned>(blocks);
}

// Calls f(T{}) with the device type of a compute dtype.
template <class F>
void dispatch_cuda(DType dtype, F&& f) {
  WYCH_CHECK(dtype == DType::kF32, "no CUDA kernel for {}", dtype_name(dtype));
  f(float{});
}

__device__ inline float load_float(const float* from) { return *from; }
__device__ inline float load_float(const __nv_bfloat16* from) { return __bfloat162float(*from); }
__device__ inline void store_float(float* to, float value) { *to = value; }
__device__ inline void store_float(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

// Sum over a warp, in every lane; a fixed tree.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}

template <class T>
__device__ T warp_max(T value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(0xffffffffU, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

// Sum over a block of kThreads threads, in every thread; a fixed tree. `scratch` is shared memory of
// kThreads / 32 elements, free again when all have returned.
template <int kThreads, class T>
__device__ T block_sum(T value, T* scratch) {
  static_assert(kThreads % kWarp == 0 && kThreads <= 1024);
  constexpr int kWarps = kThreads / kWarp;
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) {
    scratch[threadIdx.x / kWarp] = value;
  }
  __syncthreads();
  T total = T{0};
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    total += scratch[warp];
  }
  __syncthreads();
  return total;
}

}  // namespace wych::kernels
