// kCudaBlocks blocks an input, up to kInputsPerLaunch inputs a launch, each block with its own partial count;
// one block sums them. All counts are integers. 4 bytes a target.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "ops/count_targets.h"

namespace wych::ops {
namespace {

using kernels::block_sum;

constexpr int kThreads = 256;
constexpr i64 kInputsPerLaunch = 64;
constexpr i64 kBlocks = CountTargets::kCudaBlocks;

struct Params {
  const i32* targets[kInputsPerLaunch];
  i64 lengths[kInputsPerLaunch];
  i64* partial;  // [inputs of this launch, kBlocks]
};

// Block (part, input).
__global__ void __launch_bounds__(kThreads) count_targets_partial_kernel(const Params params) {
  __shared__ i64 scratch[kThreads / kernels::kWarp];
  const i32* targets = params.targets[blockIdx.y];
  const i64 length = params.lengths[blockIdx.y];
  i64 count = 0;
  for (i64 t = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; t < length; t += kBlocks * kThreads) {
    count += targets[t] != kIgnoredTarget ? 1 : 0;
  }
  count = block_sum<kThreads>(count, scratch);
  if (threadIdx.x == 0) {
    params.partial[blockIdx.y * kBlocks + blockIdx.x] = count;
  }
}

__global__ void __launch_bounds__(kThreads)
    count_targets_sum_kernel(i64 partials, const i64* __restrict__ partial, double* __restrict__ total) {
  __shared__ i64 scratch[kThreads / kernels::kWarp];
  i64 count = 0;
  for (i64 i = threadIdx.x; i < partials; i += kThreads) {
    count += partial[i];
  }
  count = block_sum<kThreads>(count, scratch);
  if (threadIdx.x == 0) {
    *total = static_cast<double>(count);
  }
}

}  // namespace

void CountTargets::launch_cuda(const ir::CudaContext& context) const {
  const auto inputs = static_cast<i64>(context.inputs.size());
  auto* partial = reinterpret_cast<i64*>(context.workspace);
  for (i64 first = 0; first < inputs; first += kInputsPerLaunch) {
    const i64 count = std::min(kInputsPerLaunch, inputs - first);
    Params params = {};
    params.partial = partial + first * kBlocks;
    for (i64 i = 0; i < count; ++i) {
      const ir::View& view = context.inputs[static_cast<std::size_t>(first + i)];
      params.targets[i] = view.as<i32>();
      params.lengths[i] = view.elements();
    }
    const dim3 grid(static_cast<unsigned>(kBlocks), static_cast<unsigned>(count));
    count_targets_partial_kernel<<<grid, kThreads, 0, context.stream>>>(params);
    WYCH_CUDA_LAUNCHED();
  }
  count_targets_sum_kernel<<<1, kThreads, 0, context.stream>>>(inputs * kBlocks, partial,
                                                               context.output(0).as<double>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
