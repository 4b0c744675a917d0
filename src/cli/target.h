// The processor that estimates assume, and what is at hand.
#pragma once

#include "base/thread_pool.h"
#include "config/config.h"
#include "plan/report.h"

namespace wych::cli {

// A laptop or server core of 2024 with 512-bit vectors; the memory is this machine's, or what its control
// group may use of it.
plan::Target cpu_target(int cores);

// One NVIDIA H200 with arithmetic in `compute`, by what was measured on one (docs/plan.md).
plan::Target cuda_target(DType compute);

// What a device (never "auto") reaches here: the pool's threads (kernels/ceilings.h, always float32), or the
// CUDA device with arithmetic in `compute` (kernels/cuda_ceilings.h). kUsage if there is no such device.
Expected<plan::Target> measured_target(config::Device device, DType compute, ThreadPool& pool);

}  // namespace wych::cli
