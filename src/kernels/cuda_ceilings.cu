#include "kernels/cuda_ceilings.h"

#include <algorithm>

#include "kernels/cuda_launch.cuh"

namespace wych::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kChains = 8;
constexpr int kIterations = 1 << 14;
constexpr int kRounds = 5;
constexpr i64 kBytes = i64{1} << 30U;

// `result` is written only if a sum is negative, which none is and the compiler cannot know.
__global__ void __launch_bounds__(kThreads) multiply_add_kernel(float factor, float* result) {
  float sums[kChains];
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) {
    sums[chain] = static_cast<float>(chain + threadIdx.x);
  }
  for (int i = 0; i < kIterations; ++i) {
#pragma unroll
    for (float& sum : sums) {
      sum = fmaf(sum, factor, factor);
    }
  }
#pragma unroll
  for (const float sum : sums) {
    if (sum < 0) {
      *result = sum;
    }
  }
}

}  // namespace

Expected<Ceilings> measure_cuda_ceilings(device::CudaDevice& device) {
  WYCH_TRY(const device::CudaArena memory, device::CudaArena::create(device, "ceilings", 2 * kBytes));
  device::CudaTimer timer;
  double multiply_add = 1e30;
  double copy = 1e30;
  const unsigned blocks = static_cast<unsigned>(device.target().num_sms) * 8;
  for (int round = 0; round < kRounds; ++round) {
    timer.start(device);
    multiply_add_kernel<<<blocks, kThreads, 0, device.stream()>>>(0.5F,
                                                                  reinterpret_cast<float*>(memory.data()));
    WYCH_CUDA_LAUNCHED();
    timer.stop(device);
    multiply_add = std::min(multiply_add, timer.seconds());
    timer.start(device);
    WYCH_CUDA_CALL(cudaMemcpyAsync(memory.data(), memory.data() + kBytes, static_cast<std::size_t>(kBytes),
                                   cudaMemcpyDeviceToDevice, device.stream()));
    timer.stop(device);
    copy = std::min(copy, timer.seconds());
  }
  const double operations = 2.0 * kChains * kIterations * kThreads * static_cast<double>(blocks);
  return Ceilings{operations / multiply_add, 2.0 * static_cast<double>(kBytes) / copy};
}

}  // namespace wych::kernels
