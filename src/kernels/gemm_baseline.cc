// The blocked matrix product for the baseline processor, AVX2 with FMA: 6 x 16 floats or 6 x 8 doubles of C
// at a time.
#include <immintrin.h>

#include "kernels/gemm_block.h"
#include "kernels/gemm_dispatch.h"
#include "kernels/gemm_transpose.h"

namespace wych::kernels {
namespace {

struct Float8 : TransposeFloat {
  using Scalar = float;
  using Type = __m256;
  static constexpr i64 kLanes = 8;
  static constexpr int kMaxVectors = 2;
  static Type zero() { return _mm256_setzero_ps(); }
  static Type load(const float* from) { return _mm256_loadu_ps(from); }
  static Type broadcast(const float* from) { return _mm256_broadcast_ss(from); }
  static Type add(Type a, Type b) { return _mm256_add_ps(a, b); }
  static Type multiply_add(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  static void store(float* to, Type value) { _mm256_storeu_ps(to, value); }
};

struct Double4 : TransposeDouble {
  using Scalar = double;
  using Type = __m256d;
  static constexpr i64 kLanes = 4;
  static constexpr int kMaxVectors = 2;
  static Type zero() { return _mm256_setzero_pd(); }
  static Type load(const double* from) { return _mm256_loadu_pd(from); }
  static Type broadcast(const double* from) { return _mm256_broadcast_sd(from); }
  static Type add(Type a, Type b) { return _mm256_add_pd(a, b); }
  static Type multiply_add(Type a, Type b, Type c) { return _mm256_fmadd_pd(a, b, c); }
  static void store(double* to, Type value) { _mm256_storeu_pd(to, value); }
};

}  // namespace

void gemm_baseline(const GemmProblem<float>& problem) { multiply<Float8>(problem); }
void gemm_baseline(const GemmProblem<double>& problem) { multiply<Double4>(problem); }

}  // namespace wych::kernels
