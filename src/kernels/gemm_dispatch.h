// Between gemm.cc and the files that compile gemm_block.h for one instruction set.
#pragma once

#include "base/types.h"

namespace wych::kernels {

// Terms that are summed in one chain; a multiple of the widest square that packing transposes.
inline constexpr i64 kGemmDepth = 128;

// The arguments of gemm_serial.
template <class T>
struct GemmProblem {
  bool trans_a;
  bool trans_b;
  i64 m;
  i64 n;
  i64 k;  // > 0
  const T* a;
  i64 lda;
  const T* b;
  i64 ldb;
  bool accumulate;
  T* c;
  i64 ldc;
};

// For any processor of the baseline.
void gemm_baseline(const GemmProblem<float>& problem);
void gemm_baseline(const GemmProblem<double>& problem);

// CPU must support AVX-512F; the same bits as gemm_baseline.
void gemm_avx512(const GemmProblem<float>& problem);
void gemm_avx512(const GemmProblem<double>& problem);

}  // namespace wych::kernels
