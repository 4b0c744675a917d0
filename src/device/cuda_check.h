// WYCH_CUDA_CALL: a CUDA call that must succeed, in the files that include CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "device/cuda.h"

namespace wych::device {

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) {
    throw DeviceError(std::string(call) + " failed: " + cudaGetErrorName(status) + ", " +
                      cudaGetErrorString(status) + " (" + file + ":" + std::to_string(line) + ")");
  }
}

}  // namespace wych::device

#define WYCH_CUDA_CALL(call) ::wych::device::check_cuda((call), #call, __FILE__, __LINE__)
// Behind a kernel launch: reports a configuration that the device refuses.
#define WYCH_CUDA_LAUNCHED() WYCH_CUDA_CALL(cudaGetLastError())
