// What this machine can do at best, measured: the ceilings that times are compared with.
#pragma once

#include "base/thread_pool.h"

namespace wych::kernels {

struct Ceilings {
  double flops_per_second = 0;  // float32 multiply-adds from registers, two operations each, all threads
  double bytes_per_second = 0;  // a copy beyond the caches, read + written, all threads
};

// Takes about 0.3 s and 256 MiB of memory, which it gives back. The best of several rounds: a ceiling is what
// other work on the machine does not take away.
Ceilings measure_ceilings(ThreadPool& pool);

}  // namespace wych::kernels
