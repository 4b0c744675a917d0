// What a CUDA device reaches at best, measured: the twin of ceilings.h.
#pragma once

#include "device/cuda.h"
#include "kernels/ceilings.h"

namespace wych::kernels {

// Float32 multiply-adds from registers and a copy of 1 GiB (read + written), the best of several rounds;
// about 0.1 s. kMemory if 2 GiB are not free.
Expected<Ceilings> measure_cuda_ceilings(device::CudaDevice& device);

}  // namespace wych::kernels
