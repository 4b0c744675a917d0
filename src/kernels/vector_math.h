// Elementary functions for inner loops. The float versions are inline and branch-free, so a loop over them
// vectorises (fma is one instruction of the baseline); the double versions are the C library's. No float
// appears in a double computation.
#pragma once

#include <bit>
#include <cmath>

#include "base/types.h"

namespace wych::kernels {

// e^x with a relative error below 1.5e-7; 0 below -103.97, infinity above 88.73, NaN for NaN.
inline float exp(float x) {
  x = x < -104.0F ? -104.0F : x;  // comparisons keep NaN
  x = x > 89.0F ? 89.0F : x;
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer, kept in the low bits.
  const float shifted = std::fma(x, 1.44269504F, 12582912.0F);
  const float n = shifted - 12582912.0F;
  const float r = std::fma(n, 2.12194442e-4F, std::fma(n, -0.693359375F, x));  // ln 2 in two parts
  // (e^r - 1 - r) / r^2, interpolated at Chebyshev nodes: 1.1e-8 off e^r.
  float series = 0.00139269268F;
  series = std::fma(series, r, 0.00836377405F);
  series = std::fma(series, r, 0.0416665487F);
  series = std::fma(series, r, 0.166665733F);
  series = std::fma(series, r, 0.5F);
  const float power = std::fma(series, r * r, r) + 1.0F;
  // 2^n as a product of two normal numbers, so that results may be subnormal or overflow.
  const i32 exponent = std::bit_cast<i32>(shifted) - std::bit_cast<i32>(12582912.0F);
  const i32 half = exponent >> 1;
  const float scale0 = std::bit_cast<float>(static_cast<u32>(half + 127) << 23U);
  const float scale1 = std::bit_cast<float>(static_cast<u32>(exponent - half + 127) << 23U);
  return power * scale0 * scale1;
}
inline double exp(double x) { return std::exp(x); }

// 1 / (1 + e^-x).
template <class T>
T sigmoid(T x) {
  return T{1} / (T{1} + exp(-x));
}

// x sigmoid(x).
template <class T>
T silu(T x) {
  return x * sigmoid(x);
}

}  // namespace wych::kernels
