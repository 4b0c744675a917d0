// Transposition of small squares with 256-bit vectors, for packing the second factor of a matrix product.
// In an unnamed namespace for the reason given in gemm_block.h.
#pragma once

#include <immintrin.h>

#include "base/types.h"

namespace wych::kernels {
namespace {

struct TransposeFloat {
  static constexpr i64 kSquare = 8;
  // to[p, j] = from[j, p], 8 x 8.
  static void transpose_square(const float* from, i64 ld_from, float* to, i64 ld_to) {
    __m256 row[8];
#pragma GCC unroll 8
    for (int i = 0; i < 4; ++i) {
      // Rows i and i + 4 side by side, first the left and then the right half.
      row[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * ld_from)),
                                    _mm_loadu_ps(from + (i + 4) * ld_from), 1);
      row[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * ld_from + 4)),
                                        _mm_loadu_ps(from + (i + 4) * ld_from + 4), 1);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 8; half += 4) {
      const __m256 t0 = _mm256_unpacklo_ps(row[half], row[half + 1]);
      const __m256 t1 = _mm256_unpackhi_ps(row[half], row[half + 1]);
      const __m256 t2 = _mm256_unpacklo_ps(row[half + 2], row[half + 3]);
      const __m256 t3 = _mm256_unpackhi_ps(row[half + 2], row[half + 3]);
      float* out = to + half * ld_to;
      _mm256_storeu_ps(out, _mm256_shuffle_ps(t0, t2, 0x44));
      _mm256_storeu_ps(out + ld_to, _mm256_shuffle_ps(t0, t2, 0xee));
      _mm256_storeu_ps(out + 2 * ld_to, _mm256_shuffle_ps(t1, t3, 0x44));
      _mm256_storeu_ps(out + 3 * ld_to, _mm256_shuffle_ps(t1, t3, 0xee));
    }
  }
};

struct TransposeDouble {
  static constexpr i64 kSquare = 4;
  // to[p, j] = from[j, p], 4 x 4.
  static void transpose_square(const double* from, i64 ld_from, double* to, i64 ld_to) {
    __m256d row[4];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      row[i] = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(from + i * ld_from)),
                                    _mm_loadu_pd(from + (i + 2) * ld_from), 1);
      row[i + 2] = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(from + i * ld_from + 2)),
                                        _mm_loadu_pd(from + (i + 2) * ld_from + 2), 1);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 4; half += 2) {
      _mm256_storeu_pd(to + half * ld_to, _mm256_unpacklo_pd(row[half], row[half + 1]));
      _mm256_storeu_pd(to + (half + 1) * ld_to, _mm256_unpackhi_pd(row[half], row[half + 1]));
    }
  }
};

}  // namespace
}  // namespace wych::kernels
