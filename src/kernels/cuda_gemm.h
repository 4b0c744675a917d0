// Float32 matrix products on CUDA, for every shape and architecture: the oracle of faster products and what
// float32 runs use. Each element of C is one chain of fused multiply-adds in the order of k, so its bits
// depend on nothing else.
#pragma once

#include "base/types.h"

struct CUstream_st;

namespace wych::kernels {

// C[m, n] = (accumulate ? C : 0) + op(A) op(B), row-major, leading dimensions in elements, device addresses;
// op as in gemm.h. Extents may be zero. Queued on `stream`.
void cuda_gemm_f32(CUstream_st* stream, bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const float* a,
                   i64 lda, const float* b, i64 ldb, bool accumulate, float* c, i64 ldc);

// The same for each of `groups` experts whose rows lie one after the other: expert e owns rows
// offsets[e] .. offsets[e + 1] (i32[groups + 1] on the device; the first 0, the last at most `rows`).
// y[rows, n] = x[rows, k] op(w[e]), w[groups, n, k] (trans_b) or w[groups, k, n]; rows past the last offset
// are left alone.
void cuda_grouped_gemm_f32(CUstream_st* stream, bool trans_b, i64 groups, const i32* offsets, i64 rows, i64 n,
                           i64 k, const float* x, const float* w, float* y);

// dw[e] = (accumulate ? dw[e] : 0) + dy[rows of e, m]^T x[rows of e, n]; dw[groups, m, n].
void cuda_grouped_dw_f32(CUstream_st* stream, i64 groups, const i32* offsets, i64 m, i64 n, const float* dy,
                         const float* x, bool accumulate, float* dw);

}  // namespace wych::kernels
