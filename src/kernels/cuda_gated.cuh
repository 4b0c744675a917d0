// The gated activation of ops/swiglu.h and its gradient, of a pack of elements; and how a warp goes through
// the columns of a row so that every lane has kBatch packs of each operand on their way before it computes.
#pragma once

#include "kernels/cuda_rows.cuh"

namespace wych::kernels {

// 1 / (1 + e^-x). What ends as bfloat16 takes the fast exponential and quotient, good to 2^-20.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return 1.0F / (1.0F + expf(-x));
  } else {
    return __fdividef(1.0F, 1.0F + __expf(-x));
  }
}

// weight silu(gate) up.
template <class T, int kWidth>
__device__ Pack<T, kWidth> gated(const Pack<T, kWidth>& gate, const Pack<T, kWidth>& up, float weight) {
  float results[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float g = load_float(&gate.values[i]);
    results[i] = weight * (g * sigmoid<T>(g) * load_float(&up.values[i]));
  }
  return rounded<T, kWidth>(results);
}

// The gradients of gate and up, in their place, for the gradient `da` of weight silu(gate) up; returns the
// sum of da silu(gate) up.
template <class T, int kWidth>
__device__ float gated_dx(const Pack<T, kWidth>& da, float weight, Pack<T, kWidth>& gate,
                          Pack<T, kWidth>& up) {
  float dgates[kWidth];
  float dups[kWidth];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float g = load_float(&gate.values[i]);
    const float u = load_float(&up.values[i]);
    const float s = sigmoid<T>(g);
    const float d = load_float(&da.values[i]) * s;
    sum = fmaf(d * g, u, sum);
    const float weighted = weight * d;
    dgates[i] = weighted * u * fmaf(g, 1.0F - s, 1.0F);
    dups[i] = weighted * g;
  }
  gate = rounded<T, kWidth>(dgates);
  up = rounded<T, kWidth>(dups);
  return sum;
}

// a = weight silu(gate) up of the rows of `width` columns at gu = [gate | up]; the warp's lanes together.
template <class T, int kWidth>
__device__ void gated_row(int width, const T* gu, float weight, T* a) {
  constexpr int kBatch = 2;
  const int packs = width / kWidth;
  const auto* gates = reinterpret_cast<const Pack<T, kWidth>*>(gu);
  const auto* ups = reinterpret_cast<const Pack<T, kWidth>*>(gu + width);
  auto* to = reinterpret_cast<Pack<T, kWidth>*>(a);
  for (int first = lane_index(); first < packs; first += kBatch * kWarp) {
    Pack<T, kWidth> gate[kBatch];
    Pack<T, kWidth> up[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b * kWarp < packs) {
        gate[b] = gates[first + b * kWarp];
        up[b] = ups[first + b * kWarp];
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b * kWarp < packs) {
        to[first + b * kWarp] = gated<T, kWidth>(gate[b], up[b], weight);
      }
    }
  }
}

// dgu = the gradient of gated_row; dgu may be gu. Returns this lane's share of sum_j da silu(gate) up.
template <class T, int kWidth>
__device__ float gated_row_dx(int width, const T* da, const T* gu, float weight, T* dgu) {
  constexpr int kBatch = 2;
  const int packs = width / kWidth;
  const auto* from = reinterpret_cast<const Pack<T, kWidth>*>(da);
  const auto* gates = reinterpret_cast<const Pack<T, kWidth>*>(gu);
  const auto* ups = reinterpret_cast<const Pack<T, kWidth>*>(gu + width);
  auto* dgates = reinterpret_cast<Pack<T, kWidth>*>(dgu);
  auto* dups = reinterpret_cast<Pack<T, kWidth>*>(dgu + width);
  float sum = 0;
  for (int first = lane_index(); first < packs; first += kBatch * kWarp) {
    Pack<T, kWidth> d[kBatch];
    Pack<T, kWidth> gate[kBatch];
    Pack<T, kWidth> up[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b * kWarp < packs) {
        d[b] = from[first + b * kWarp];
        gate[b] = gates[first + b * kWarp];
        up[b] = ups[first + b * kWarp];
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b * kWarp < packs) {
        sum += gated_dx<T, kWidth>(d[b], weight, gate[b], up[b]);
        dgates[first + b * kWarp] = gate[b];
        dups[first + b * kWarp] = up[b];
      }
    }
  }
  return sum;
}

}  // namespace wych::kernels
