// Root-mean-square normalisation of single rows (the formulas are in ops/rms_norm.h), shared by rms_norm and
// qk_norm. Outputs may be the very buffers of the inputs: every element is read before it is written.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/lane_sum.h"

namespace wych::kernels {

template <class T>
T rms_rstd(const T* x, i64 n, double eps) {
  const T mean = lane_sum<T>(n, [=](i64 j) { return x[j] * x[j]; }) / static_cast<T>(n);
  return T{1} / std::sqrt(mean + static_cast<T>(eps));
}

// y = x rstd weight.
template <class T>
void rms_apply(const T* x, const T* weight, T rstd, i64 n, T* y) {
#pragma GCC ivdep
  for (i64 j = 0; j < n; ++j) {
    y[j] = x[j] * rstd * weight[j];
  }
}

// dx = rstd (dy weight - x mean) + passing, with no `passing` where that is null.
template <class T>
void rms_dx(const T* dy, const T* x, const T* weight, T rstd, i64 n, T* dx, const T* passing = nullptr) {
  // mean_j(g xhat) xhat = x sum_j(dy weight x) rstd^2 / n.
  const T sum = lane_sum<T>(n, [=](i64 j) { return dy[j] * weight[j] * x[j]; });
  const T mean = sum * rstd * rstd / static_cast<T>(n);
  if (passing == nullptr) {
#pragma GCC ivdep
    for (i64 j = 0; j < n; ++j) {
      dx[j] = rstd * (dy[j] * weight[j] - x[j] * mean);
    }
    return;
  }
#pragma GCC ivdep
  for (i64 j = 0; j < n; ++j) {
    dx[j] = passing[j] + rstd * (dy[j] * weight[j] - x[j] * mean);
  }
}

// dweight += dy x rstd.
template <class T>
void rms_add_dweight(const T* dy, const T* x, T rstd, i64 n, T* dweight) {
  for (i64 j = 0; j < n; ++j) {
    dweight[j] += dy[j] * (x[j] * rstd);
  }
}

// dweight[n] (+)= the sum of what add_row(r, sum) adds for each r in [0, rows): rows are summed in shares
// and the shares in order. `shares` is scratch of rms_num_shares(rows) * n.
inline i64 rms_share(i64 rows) { return std::max<i64>(64, round_up(ceil_div(rows, 128), 16)); }
inline i64 rms_num_shares(i64 rows) { return ceil_div(rows, rms_share(rows)); }

template <class T, class AddRow>
void rms_sum_rows(ThreadPool& pool, i64 rows, i64 n, bool accumulate, T* shares, T* dweight,
                  const AddRow& add_row) {
  const i64 grain = rms_share(rows);
  pool.parallel_chunks(rows, grain, [&](i64 begin, i64 end) {
    T* share = shares + begin / grain * n;
    std::fill_n(share, n, T{0});
    for (i64 r = begin; r < end; ++r) {
      add_row(r, share);
    }
  });
  if (!accumulate) {
    std::fill_n(dweight, n, T{0});
  }
  for (i64 share = 0; share < rms_num_shares(rows); ++share) {
    for (i64 j = 0; j < n; ++j) {
      dweight[j] += shares[share * n + j];
    }
  }
}

}  // namespace wych::kernels
