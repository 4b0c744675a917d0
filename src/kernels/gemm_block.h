// The blocked matrix product, templated on a vector type; included only by gemm_baseline.cc and
// gemm_avx512.cc, each of which compiles it for its own instruction set. Hence the unnamed namespace: the
// two copies must never be merged.
//
// B is copied in panels of kGemmDepth x kPanelColumns<V> that stay in the first-level cache; a micro-kernel
// with kMaxRows x kMaxVectors accumulators walks down a panel for every strip of kMaxRows rows of A. A is
// read where it lies. Every element of C is summed as gemm.h says, whatever the blocks.
#pragma once

#include <algorithm>

#include "base/types.h"
#include "kernels/gemm_dispatch.h"

namespace wych::kernels {
namespace {

// 6 x 4 accumulators and 4 vectors of B leave three of 32 registers (6 x 2 and 2: two of 16).
inline constexpr int kMaxRows = 6;

template <class V>
constexpr i64 kPanelColumns = V::kMaxVectors* V::kLanes;

// out[depth, columns rounded up to whole vectors] = op(B), zero behind `columns`.
template <class V>
void pack_panel(bool trans_b, const typename V::Scalar* b, i64 ldb, i64 depth, i64 columns,
                typename V::Scalar* out) {
  using T = typename V::Scalar;
  const i64 width = round_up(columns, V::kLanes);
  if (!trans_b) {
    const i64 whole = columns / V::kLanes * V::kLanes;
    for (i64 p = 0; p < depth; ++p, b += ldb, out += width) {
      for (i64 j = 0; j < whole; j += V::kLanes) {
        V::store(out + j, V::load(b + j));
      }
      for (i64 j = whole; j < width; ++j) {
        out[j] = j < columns ? b[j] : T{0};
      }
    }
    return;
  }
  i64 j = 0;
  for (; j + V::kSquare <= columns; j += V::kSquare) {
    i64 p = 0;
    for (; p + V::kSquare <= depth; p += V::kSquare) {
      V::transpose_square(b + j * ldb + p, ldb, out + p * width + j, width);
    }
    for (; p < depth; ++p) {
      for (i64 column = j; column < j + V::kSquare; ++column) {
        out[p * width + column] = b[column * ldb + p];
      }
    }
  }
  for (; j < width; ++j) {
    for (i64 p = 0; p < depth; ++p) {
      out[p * width + j] = j < columns ? b[j * ldb + p] : T{0};
    }
  }
}

// C[kRows, kVectors * kLanes] (+)= A B over one block of depth. Element (i, p) of op(A) is a[i * lda + p], or
// a[p * lda + i] if kTransA. C is fetched while the products are formed.
template <class V, int kRows, int kVectors, bool kTransA>
void micro_kernel(i64 depth, const typename V::Scalar* a, i64 lda, const typename V::Scalar* b, bool add,
                  typename V::Scalar* c, i64 ldc) {
  typename V::Type sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = V::zero();
      __builtin_prefetch(c + i * ldc + v * V::kLanes, 1);
    }
  }
  for (i64 p = 0; p < depth; ++p) {
    typename V::Type row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      row[v] = V::load(b + v * V::kLanes);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const typename V::Type factor = V::broadcast(kTransA ? a + i : a + i * lda);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = V::multiply_add(factor, row[v], sum[i][v]);
      }
    }
    a += kTransA ? lda : 1;
    b += kVectors * V::kLanes;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      typename V::Scalar* to = c + i * ldc + v * V::kLanes;
      V::store(to, add ? V::add(V::load(to), sum[i][v]) : sum[i][v]);
    }
  }
}

template <class V>
using MicroKernel = void (*)(i64 depth, const typename V::Scalar* a, i64 lda, const typename V::Scalar* b,
                             bool add, typename V::Scalar* c, i64 ldc);

template <class V, bool kTransA, int kVectors>
MicroKernel<V> kernel_of_rows(i64 rows) {
  constexpr MicroKernel<V> kKernels[kMaxRows] = {
      micro_kernel<V, 1, kVectors, kTransA>, micro_kernel<V, 2, kVectors, kTransA>,
      micro_kernel<V, 3, kVectors, kTransA>, micro_kernel<V, 4, kVectors, kTransA>,
      micro_kernel<V, 5, kVectors, kTransA>, micro_kernel<V, 6, kVectors, kTransA>};
  return kKernels[rows - 1];
}

template <class V, bool kTransA>
MicroKernel<V> kernel_of(i64 rows, i64 vectors) {
  if constexpr (V::kMaxVectors == 4) {
    if (vectors == 4) {
      return kernel_of_rows<V, kTransA, 4>(rows);
    }
    if (vectors == 3) {
      return kernel_of_rows<V, kTransA, 3>(rows);
    }
  }
  return vectors == 2 ? kernel_of_rows<V, kTransA, 2>(rows) : kernel_of_rows<V, kTransA, 1>(rows);
}

// C[m, columns] (+)= op(A)[m, depth] times one packed panel.
template <class V, bool kTransA>
void multiply_panel(i64 m, i64 columns, i64 depth, const typename V::Scalar* a, i64 lda,
                    const typename V::Scalar* panel, bool add, typename V::Scalar* c, i64 ldc) {
  using T = typename V::Scalar;
  const i64 vectors = ceil_div(columns, V::kLanes);
  const i64 width = vectors * V::kLanes;
  alignas(64) T edge[kMaxRows * kPanelColumns<V>];  // a tile whose last vector reaches beyond C
  for (i64 i = 0; i < m; i += kMaxRows) {
    const i64 rows = std::min<i64>(kMaxRows, m - i);
    const T* from = kTransA ? a + i : a + i * lda;
    const MicroKernel<V> kernel = kernel_of<V, kTransA>(rows, vectors);
    T* to = c + i * ldc;
    if (columns == width) {
      kernel(depth, from, lda, panel, add, to, ldc);
      continue;
    }
    kernel(depth, from, lda, panel, false, edge, width);
    for (i64 r = 0; r < rows; ++r) {
      for (i64 j = 0; j < columns; ++j) {
        to[r * ldc + j] = add ? to[r * ldc + j] + edge[r * width + j] : edge[r * width + j];
      }
    }
  }
}

template <class V>
void multiply(const GemmProblem<typename V::Scalar>& problem) {
  using T = typename V::Scalar;
  const auto& [trans_a, trans_b, m, n, k, a, lda, b, ldb, accumulate, c, ldc] = problem;
  alignas(64) T panel[kGemmDepth * kPanelColumns<V>];
  for (i64 p = 0; p < k; p += kGemmDepth) {
    const i64 depth = std::min(kGemmDepth, k - p);
    for (i64 j = 0; j < n; j += kPanelColumns<V>) {
      const i64 columns = std::min(kPanelColumns<V>, n - j);
      pack_panel<V>(trans_b, trans_b ? b + j * ldb + p : b + p * ldb + j, ldb, depth, columns, panel);
      const bool add = accumulate || p > 0;
      if (trans_a) {
        multiply_panel<V, true>(m, columns, depth, a + p * lda, lda, panel, add, c + j, ldc);
      } else {
        multiply_panel<V, false>(m, columns, depth, a + p, lda, panel, add, c + j, ldc);
      }
    }
  }
}

}  // namespace
}  // namespace wych::kernels
