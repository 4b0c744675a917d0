// How kernels of this folder cut rows into pieces of parallel work, and the sums inside one row. Both depend
// on the sizes alone.
#pragma once

#include <algorithm>

#include "base/types.h"

namespace wych::ops {

// Elements that are worth handing to a thread.
inline constexpr i64 kElementsPerChunk = 1 << 14;

constexpr i64 rows_per_chunk(i64 row_elements) {
  return std::max<i64>(1, kElementsPerChunk / std::max<i64>(1, row_elements));
}

// sum_i a[i] b[i]: in order for short rows, else over 32 independent sums (the compiler may not reorder one)
// that are added pairwise at the end.
template <class T>
T dot(const T* a, const T* b, i64 n) {
  constexpr i64 kLanes = 32;
  if (n < kLanes) {
    T sum = 0;
    for (i64 i = 0; i < n; ++i) {
      sum += a[i] * b[i];
    }
    return sum;
  }
  T lanes[kLanes] = {};
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (i64 lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += a[i + lane] * b[i + lane];
    }
  }
  for (i64 lane = 0; i + lane < n; ++lane) {
    lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (i64 width = kLanes / 2; width > 0; width /= 2) {
    for (i64 lane = 0; lane < width; ++lane) {
      lanes[lane] += lanes[lane + width];
    }
  }
  return lanes[0];
}

}  // namespace wych::ops
