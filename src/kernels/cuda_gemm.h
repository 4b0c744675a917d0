// Matrix products on CUDA for every shape and architecture: what float32 runs use, and the oracle and
// fallback of faster products in bfloat16. Each element of C is one float32 chain of fused multiply-adds in
// the order of k, so its bits depend on nothing else; it is rounded once where C is bfloat16.
//
// Instantiated for T = float with Out = float and for T = __nv_bfloat16 with Out = float or __nv_bfloat16.
#pragma once

#include <cuda_bf16.h>

#include "base/types.h"

struct CUstream_st;

namespace wych::kernels {

// C[m, n] = (accumulate ? C : 0) + op(A) op(B), row-major, leading dimensions in elements, device addresses;
// op as in gemm.h. Extents may be zero. Queued on `stream`.
template <class T, class Out>
void cuda_gemm(CUstream_st* stream, bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const T* a, i64 lda,
               const T* b, i64 ldb, bool accumulate, Out* c, i64 ldc);

// The same for each of `groups` experts whose rows lie one after the other: expert e owns rows
// offsets[e] .. offsets[e + 1] (i32[groups + 1] on the device; the first 0, the last at most `rows`).
// y[rows, n] = x[rows, k] op(w[e]), w[groups, n, k] (trans_b) or w[groups, k, n]; rows past the last offset
// are left alone. T = float or __nv_bfloat16.
template <class T>
void cuda_grouped_gemm(CUstream_st* stream, bool trans_b, i64 groups, const i32* offsets, i64 rows, i64 n,
                       i64 k, const T* x, const T* w, T* y);

// dw[e] = (accumulate ? dw[e] : 0) + dy[rows of e, m]^T x[rows of e, n]; dw[groups, m, n].
template <class T>
void cuda_grouped_dw(CUstream_st* stream, i64 groups, const i32* offsets, i64 m, i64 n, const T* dy,
                     const T* x, bool accumulate, float* dw);

}  // namespace wych::kernels
