// Time of work on a CUDA device, for wych bench.
#pragma once

#include <functional>

#include "device/cuda.h"

namespace wych::cli {

// Median seconds, by events on the stream, of what `work` queues; two rounds warm up.
double median_seconds(device::CudaDevice& device, i64 repeats, const std::function<void()>& work);

}  // namespace wych::cli
