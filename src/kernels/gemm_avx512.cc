// The blocked matrix product with 512-bit vectors: 6 x 64 floats or 6 x 32 doubles of C at a time. Called
// only where the processor has AVX-512F.
#include <immintrin.h>

#include <algorithm>

#include "kernels/gemm_dispatch.h"

// Everything below, gemm_block.h included, is compiled for AVX-512; what is above is shared and is not.
#pragma GCC target("avx512f")
#include "kernels/gemm_block.h"
#include "kernels/gemm_transpose.h"

namespace wych::kernels {
namespace {

struct Float16 : TransposeFloat {
  using Scalar = float;
  using Type = __m512;
  static constexpr i64 kLanes = 16;
  static constexpr int kMaxVectors = 4;
  static Type zero() { return _mm512_setzero_ps(); }
  static Type load(const float* from) { return _mm512_loadu_ps(from); }
  static Type broadcast(const float* from) { return _mm512_set1_ps(*from); }
  static Type add(Type a, Type b) { return _mm512_add_ps(a, b); }
  static Type multiply_add(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  static void store(float* to, Type value) { _mm512_storeu_ps(to, value); }
};

struct Double8 : TransposeDouble {
  using Scalar = double;
  using Type = __m512d;
  static constexpr i64 kLanes = 8;
  static constexpr int kMaxVectors = 4;
  static Type zero() { return _mm512_setzero_pd(); }
  static Type load(const double* from) { return _mm512_loadu_pd(from); }
  static Type broadcast(const double* from) { return _mm512_set1_pd(*from); }
  static Type add(Type a, Type b) { return _mm512_add_pd(a, b); }
  static Type multiply_add(Type a, Type b, Type c) { return _mm512_fmadd_pd(a, b, c); }
  static void store(double* to, Type value) { _mm512_storeu_pd(to, value); }
};

}  // namespace

void gemm_avx512(const GemmProblem<float>& problem) { multiply<Float16>(problem); }
void gemm_avx512(const GemmProblem<double>& problem) { multiply<Double8>(problem); }

}  // namespace wych::kernels
