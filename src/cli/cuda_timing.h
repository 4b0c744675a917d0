// Times of work on a CUDA device, for the benchmarks.
#pragma once

#include <functional>

#include "device/cuda.h"

namespace wych::cli {

// Median seconds of what `work` queues, after two rounds that do not count. `before` is queued ahead of every
// round and not timed.
double median_seconds(device::CudaDevice& device, i64 repeats, const std::function<void()>& work,
                      const std::function<void()>& before = {});

}  // namespace wych::cli
