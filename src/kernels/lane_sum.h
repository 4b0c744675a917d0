// Sums and maxima inside one row. The compiler may not reorder a floating-point sum, so the order is fixed
// here as one that vectorises: independent sums over lanes, then a tree over the lanes. It depends on n
// alone.
#pragma once

#include <cstring>

#include "base/types.h"

namespace wych::kernels {

// The sum of term(i), of type T, over 0 <= i < n.
template <class T, class Term>
T lane_sum(i64 n, const Term& term) {
  constexpr i64 kLanes = 16;
  T lanes[kLanes] = {};
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (i64 lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += term(i + lane);
    }
  }
  for (i64 lane = 0; i + lane < n; ++lane) {
    lanes[lane] += term(i + lane);
  }
  // The compiler vectorises this tree well only when told the vectors.
  typedef T Vector __attribute__((vector_size(8 * sizeof(T))));
  Vector halves[2];
  std::memcpy(halves, lanes, sizeof(lanes));
  const Vector v = halves[0] + halves[1];
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// The largest of values[0, n), n > 0; unspecified if one of them is NaN.
template <class T>
T lane_max(const T* values, i64 n) {
  constexpr i64 kLanes = 32;
  const auto larger = [](T a, T b) { return b > a ? b : a; };
  T lanes[kLanes];
  for (T& lane : lanes) {
    lane = values[0];
  }
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (i64 lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = larger(lanes[lane], values[i + lane]);
    }
  }
  for (i64 lane = 0; i + lane < n; ++lane) {
    lanes[lane] = larger(lanes[lane], values[i + lane]);
  }
#pragma GCC unroll 8
  for (i64 width = kLanes / 2; width > 0; width /= 2) {
#pragma GCC unroll 16
    for (i64 lane = 0; lane < width; ++lane) {
      lanes[lane] = larger(lanes[lane], lanes[lane + width]);
    }
  }
  return lanes[0];
}

}  // namespace wych::kernels
