#include "kernels/gemm.h"

#include <algorithm>

#include "kernels/gemm_dispatch.h"

namespace wych::kernels {
namespace {

template <class T>
void clear(i64 m, i64 n, T* c, i64 ldc) {
  for (i64 i = 0; i < m; ++i) {
    std::fill_n(c + i * ldc, n, T{0});
  }
}

}  // namespace

template <class T>
void gemm_serial(bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const T* a, i64 lda, const T* b, i64 ldb,
                 bool accumulate, T* c, i64 ldc) {
  if (k == 0) {
    if (!accumulate) {
      clear(m, n, c, ldc);
    }
    return;
  }
  const GemmProblem<T> problem{trans_a, trans_b, m, n, k, a, lda, b, ldb, accumulate, c, ldc};
  if (__builtin_cpu_supports("avx512f")) {
    gemm_avx512(problem);
  } else {
    gemm_baseline(problem);
  }
}

template <class T>
void gemm(ThreadPool& pool, bool trans_a, bool trans_b, i64 m, i64 n, i64 k, const T* a, i64 lda, const T* b,
          i64 ldb, bool accumulate, T* c, i64 ldc) {
  constexpr i64 kTileRows = 192;
  constexpr i64 kTileColumns = 128;
  const i64 column_tiles = ceil_div(n, kTileColumns);
  pool.parallel_for(ceil_div(m, kTileRows) * column_tiles, [&](i64 tile) {
    const i64 i = tile / column_tiles * kTileRows;
    const i64 j = tile % column_tiles * kTileColumns;
    gemm_serial(trans_a, trans_b, std::min(kTileRows, m - i), std::min(kTileColumns, n - j), k,
                trans_a ? a + i : a + i * lda, lda, trans_b ? b + j * ldb : b + j, ldb, accumulate,
                c + i * ldc + j, ldc);
  });
}

template void gemm<float>(ThreadPool&, bool, bool, i64, i64, i64, const float*, i64, const float*, i64, bool,
                          float*, i64);
template void gemm<double>(ThreadPool&, bool, bool, i64, i64, i64, const double*, i64, const double*, i64,
                           bool, double*, i64);
template void gemm_serial<float>(bool, bool, i64, i64, i64, const float*, i64, const float*, i64, bool,
                                 float*, i64);
template void gemm_serial<double>(bool, bool, i64, i64, i64, const double*, i64, const double*, i64, bool,
                                  double*, i64);

}  // namespace wych::kernels
