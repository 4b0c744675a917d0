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

// What a process has on a device beside its arenas, measured on an H200 with driver 580 (docs/plan.md): the
// context with the kernels and cuBLASLt's, and the captured graphs by their instructions.
inline constexpr i64 kCudaContextBytes = i64{512} << 20U;
inline constexpr i64 kCudaGraphBytes = 4096;

}  // namespace wych
