#include "kernels/cuda_ceilings.h"

#include <algorithm>

#include "device/cuda_matmul.h"
#include "kernels/cuda_launch.cuh"
#include "kernels/cuda_random.h"

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

double measure_multiply_adds(device::CudaDevice& device, std::byte* memory) {
  const unsigned blocks = static_cast<unsigned>(device.target().num_sms) * 8;
  device::CudaTimer timer;
  double seconds = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    timer.start(device);
    multiply_add_kernel<<<blocks, kThreads, 0, device.stream()>>>(0.5F, reinterpret_cast<float*>(memory));
    WYCH_CUDA_LAUNCHED();
    timer.stop(device);
    seconds = std::min(seconds, timer.seconds());
  }
  return 2.0 * kChains * kIterations * kThreads * static_cast<double>(blocks) / seconds;
}

double measure_product(device::CudaDevice& device, std::byte* memory) {
  constexpr i64 kExtent = 8192;
  constexpr i64 kElements = kExtent * kExtent;
  static_assert(3 * kElements * 2 + kMatmulWorkspaceBytes <= 2 * kBytes);
  auto* a = reinterpret_cast<__nv_bfloat16*>(memory);
  cuda_fill_normal(device.stream(), 1, 1.0F, kElements, a);
  cuda_fill_normal(device.stream(), 2, 1.0F, kElements, a + kElements);
  const device::MatmulShape shape{.trans_b = true,
                                  .m = kExtent,
                                  .n = kExtent,
                                  .k = kExtent,
                                  .lda = kExtent,
                                  .ldb = kExtent,
                                  .ldc = kExtent};
  device::CudaTimer timer;
  double seconds = 1e30;
  for (int round = 0; round < 4 * kRounds; ++round) {
    timer.start(device);
    device.matmul().multiply(device.stream(), shape, a, a + kElements, a + 2 * kElements,
                             reinterpret_cast<std::byte*>(a + 3 * kElements));
    timer.stop(device);
    seconds = std::min(seconds, timer.seconds());
  }
  return 2.0 * kExtent * kElements / seconds;
}

}  // namespace

Expected<Ceilings> measure_cuda_ceilings(device::CudaDevice& device, DType compute) {
  WYCH_TRY(const device::CudaArena memory, device::CudaArena::create(device, "ceilings", 2 * kBytes));
  device::CudaTimer timer;
  double copy = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    timer.start(device);
    WYCH_CUDA_CALL(cudaMemcpyAsync(memory.data(), memory.data() + kBytes, static_cast<std::size_t>(kBytes),
                                   cudaMemcpyDeviceToDevice, device.stream()));
    timer.stop(device);
    copy = std::min(copy, timer.seconds());
  }
  const double arithmetic = compute == DType::kBF16 ? measure_product(device, memory.data())
                                                    : measure_multiply_adds(device, memory.data());
  return Ceilings{arithmetic, 2.0 * static_cast<double>(kBytes) / copy};
}

}  // namespace wych::kernels
