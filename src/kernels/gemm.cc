// Cuts a product into tiles for the pool and picks the kernels of this processor; gemm_block.h multiplies.
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

// The part of C that one thread computes at a time: tall enough to pay for packing B, small enough to share a
// small product among 8 threads, equal parts as far as possible. Cutting C changes no bit.
Tile tile_of(i64 m, i64 n, i64 k) {
  constexpr i64 kWantedTiles = 8;
  constexpr double kSmallestTile = 1 << 18;  // multiply-adds: several microseconds
  i64 row_tiles = std::max<i64>(1, ceil_div(m, 256));
  i64 column_tiles = std::max<i64>(1, ceil_div(n, 128));
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto is_coarse = [&] {
    const i64 tiles = row_tiles * column_tiles;
    return tiles < kWantedTiles && work >= 2 * kSmallestTile * static_cast<double>(tiles);
  };
  column_tiles = is_coarse() ? std::max<i64>(1, ceil_div(n, 64)) : column_tiles;
  while (is_coarse() && m > 64 * row_tiles) {
    ++row_tiles;
  }
  // Whole strips and panels of the kernels.
  return {std::max<i64>(6, round_up(ceil_div(m, row_tiles), 6)),
          std::max<i64>(64, round_up(ceil_div(n, column_tiles), 64))};
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
