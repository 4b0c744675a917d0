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

struct Tile {
  i64 rows;
  i64 columns;
};

// The part of C that one thread computes at a time: large enough to pay for packing, small enough to share a
// small product among 16 threads. Cutting C changes no bit.
Tile tile_of(i64 m, i64 n, i64 k) {
  constexpr i64 kWantedTiles = 16;
  constexpr i64 kSmallestTile = i64{1} << 18;  // multiply-adds: several microseconds
  Tile tile{192, 128};
  const auto is_coarse = [&] {
    return ceil_div(m, tile.rows) * ceil_div(n, tile.columns) < kWantedTiles &&
           std::min(m, tile.rows) * std::min(n, tile.columns) * k >= 2 * kSmallestTile;
  };
  tile.columns = is_coarse() ? 64 : tile.columns;
  while (tile.rows > 48 && is_coarse()) {
    tile.rows /= 2;
  }
  return tile;
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
  const Tile tile = tile_of(m, n, k);
  const i64 column_tiles = ceil_div(n, tile.columns);
  pool.parallel_for(ceil_div(m, tile.rows) * column_tiles, [&](i64 index) {
    const i64 i = index / column_tiles * tile.rows;
    const i64 j = index % column_tiles * tile.columns;
    gemm_serial(trans_a, trans_b, std::min(tile.rows, m - i), std::min(tile.columns, n - j), k,
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
