// Sums and maxima inside one row. The compiler may not reorder a floating-point sum, so the order is fixed
// here as one that vectorises: kSumLanes independent sums, added pairwise at the end. It depends on n alone.
#pragma once

#include <algorithm>

#include "base/types.h"

namespace wych::kernels {

inline constexpr i64 kSumLanes = 32;

// The sum of term(i), of type T, over 0 <= i < n.
template <class T, class Term>
T lane_sum(i64 n, const Term& term) {
  T lanes[kSumLanes] = {};
  i64 i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (i64 lane = 0; lane < kSumLanes; ++lane) {
      lanes[lane] += term(i + lane);
    }
  }
  for (i64 lane = 0; i + lane < n; ++lane) {
    lanes[lane] += term(i + lane);
  }
  for (i64 width = kSumLanes / 2; width > 0; width /= 2) {
    for (i64 lane = 0; lane < width; ++lane) {
      lanes[lane] += lanes[lane + width];
    }
  }
  return lanes[0];
}

// The largest of values[0, n), n > 0; unspecified if one of them is NaN.
template <class T>
T lane_max(const T* values, i64 n) {
  T lanes[kSumLanes];
  std::fill_n(lanes, kSumLanes, values[0]);
  i64 i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (i64 lane = 0; lane < kSumLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (i64 lane = 0; i + lane < n; ++lane) {
    lanes[lane] = std::max(lanes[lane], values[i + lane]);
  }
  return *std::max_element(lanes, lanes + kSumLanes);
}

}  // namespace wych::kernels
