// Matrix products on the CPU. Each element of C is a sum over k in an order that depends on k alone (blocks
// of kGemmDepth terms, each block one chain of fused multiply-adds), so its bits depend neither on m, n, the
// transposes and leading dimensions, nor on the threads or the width of the processor's vectors.
// gemm.cc tiles and dispatches; gemm_block.h is the kernel.
#pragma once

#include "base/thread_pool.h"
#include "base/types.h"

namespace wych::kernels {

// C[m, n] = (accumulate ? C : 0) + op(A) op(B), all row-major with leading dimensions in elements, where
// op(A)[m, k] is A or, if trans_a, the transpose of A[k, m]; op(B)[k, n] is B or the transpose of B[n, k].
// T is float or double. Extents may be zero: k = 0 gives C or zeros. C must not overlap A or B. NaN and
// infinity propagate. Without `accumulate` C is not read. Allocates nothing (up to 40 KiB of stack).
//
// gemm splits the work over the pool and must not be called from inside a parallel body; gemm_serial runs
// on the caller and may be.
template <class T>
void gemm(ThreadPool& pool, bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const T* a, i64 lda, const T* b,
          i64 ldb, bool accumulate, T* c, i64 ldc);
template <class T>
void gemm_serial(bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const T* a, i64 lda, const T* b, i64 ldb,
                 bool accumulate, T* c, i64 ldc);

}  // namespace wych::kernels
