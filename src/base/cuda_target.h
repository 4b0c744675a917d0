// What host code must know of a CUDA device to choose tiles and workspaces: a table, never a query, so that a
// laptop plans for a cluster.
#pragma once

#include "base/types.h"

namespace wych {

struct CudaTarget {
  int architecture = 90;  // 10 * major + minor of the compute capability
  int num_sms = 132;
};

// Scratch that a bfloat16 product by cuBLASLt may use: what NVIDIA recommends for Hopper.
inline constexpr i64 kMatmulWorkspaceBytes = i64{32} << 20U;

}  // namespace wych
