// The processor that estimates assume, and the one at hand.
#pragma once

#include "base/thread_pool.h"
#include "plan/report.h"

namespace wych::cli {

// A laptop or server core of 2024 with 512-bit vectors; the memory is this machine's, or what its control
// group may use of it.
plan::Target cpu_target(int cores);

// This machine's processor with the rates that the pool's threads reach (kernels/ceilings.h).
plan::Target measured_cpu_target(ThreadPool& pool);

}  // namespace wych::cli
