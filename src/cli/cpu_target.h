// The processor that estimates assume.
#pragma once

#include "plan/report.h"

namespace wych::cli {

// A laptop or server core of 2024 with 512-bit vectors; the memory is this machine's, or what its control
// group may use of it.
plan::Target cpu_target(int cores);

}  // namespace wych::cli
