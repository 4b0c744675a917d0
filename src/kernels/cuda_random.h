// Random data for tests and benchmarks: never zeros, on which products run faster than on real values.
#pragma once

#include <cuda_bf16.h>

#include "base/types.h"

struct CUstream_st;

namespace wych::kernels {

// data[i] = std times number i of the normal stream of `seed` (base/philox.h), rounded to nearest.
void cuda_fill_normal(CUstream_st* stream, u64 seed, float std, i64 count, __nv_bfloat16* data);
void cuda_fill_normal(CUstream_st* stream, u64 seed, float std, i64 count, float* data);

}  // namespace wych::kernels
