// What a CUDA device reaches at best, measured: the twin of ceilings.h.
#pragma once

#include "base/dtype.h"
#include "device/cuda.h"
#include "kernels/ceilings.h"

namespace wych::kernels {

// Arithmetic in `compute` and a copy of 1 GiB (read + written), the best of several rounds; about 0.1 s. For
// float32 the arithmetic is multiply-adds from registers; for bfloat16 a product of 8192 x 8192 x 8192 of
// normal numbers by cuBLASLt, what the power limit leaves of the tensor cores. kMemory if 2 GiB are not free.
Expected<Ceilings> measure_cuda_ceilings(device::CudaDevice& device, DType compute);

}  // namespace wych::kernels
