// A copy or nothing, chosen on the device: 8 bytes an element, or none.
#include "kernels/cuda_launch.cuh"
#include "ops/select_state.h"
#include "ops/step_decision.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    select_state_kernel(i64 count, const double* __restrict__ decision, const float* __restrict__ candidate,
                        float* __restrict__ state) {
  const i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count && decision[Decision::kApplied] != 0) {
    state[i] = candidate[i];
  }
}

}  // namespace

void SelectState::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.output(0).elements();
  if (count == 0) {
    return;
  }
  select_state_kernel<<<kernels::blocks_for(count, kThreads), kThreads, 0, context.stream>>>(
      count, context.input(2).as<double>(), context.input(1).as<float>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
