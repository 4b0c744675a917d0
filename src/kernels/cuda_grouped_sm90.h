// Grouped matrix products in bfloat16 for Hopper (sm_90a): one persistent kernel whose producer fetches tiles
// by TMA and whose two consumer warpgroups multiply them with wgmma, accumulating in float32. Which rows
// belong to which expert is read from device memory: nothing about the routing is known to the host.
//
// Rows of an expert are a segment offsets[e] .. offsets[e + 1] of one buffer, its length a multiple of 128;
// pad rows inside a segment are zero. Extents n and k are multiples of 64. Buffers are aligned to 128 bytes.
#pragma once

#include <cuda_bf16.h>

#include "base/cuda_target.h"
#include "base/types.h"

struct CUstream_st;

namespace wych::kernels {

struct GroupedShape {
  i64 groups = 0;  // experts, at most 512
  i64 rows = 0;    // of the buffers; offsets[groups] at most
  i64 n = 0;       // output features
  i64 k = 0;       // input features
};

// Whether the kernel may be used; if not, cuda_gemm.h has one for every shape.
bool grouped_sm90_supports(const CudaTarget& target, const GroupedShape& shape);

// y[rows, n] = x[rows, k] w[e][n, k]^T. Rows past the last segment are left alone. Deterministic.
void grouped_sm90_forward(CUstream_st* stream, const CudaTarget& target, const GroupedShape& shape,
                          const i32* offsets, const __nv_bfloat16* x, const __nv_bfloat16* w,
                          __nv_bfloat16* y);

// dx[rows, k] = dy[rows, n] w[e][n, k].
void grouped_sm90_dx(CUstream_st* stream, const CudaTarget& target, const GroupedShape& shape,
                     const i32* offsets, const __nv_bfloat16* dy, const __nv_bfloat16* w, __nv_bfloat16* dx);

// dw[e][n, k] = (accumulate ? dw : 0) + dy[rows of e, n]^T x[rows of e, k], in float32; an expert without
// rows gets zeros. One block sums an element over all its rows in order.
void grouped_sm90_dw(CUstream_st* stream, const CudaTarget& target, const GroupedShape& shape,
                     const i32* offsets, const __nv_bfloat16* dy, const __nv_bfloat16* x, bool accumulate,
                     float* dw);

}  // namespace wych::kernels
