// Histograms of kCudaRoutesPerChunk routes each in shared memory, in integers and so in any order; then one
// thread a fraction sums its group's chunks. 4 bytes a route for every kExpertsPerBlock experts, 8 an expert
// and chunk.
#include "kernels/cuda_launch.cuh"
#include "ops/expert_fractions.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;

constexpr int kThreads = 256;
constexpr int kExpertsPerBlock = 1024;
constexpr i64 kRoutesPerChunk = ExpertFractions::kCudaRoutesPerChunk;

// Block (chunk of all groups, range of experts); partial[groups * chunks, experts].
__global__ void __launch_bounds__(kThreads)
    expert_fractions_count_kernel(i64 routes, i64 chunks, i64 experts, const i32* __restrict__ indices,
                                  i32* __restrict__ partial) {
  __shared__ i32 counts[kExpertsPerBlock];
  const i64 group = blockIdx.x / chunks;
  const i64 begin = blockIdx.x % chunks * kRoutesPerChunk;
  const i64 end = begin + kRoutesPerChunk < routes ? begin + kRoutesPerChunk : routes;
  const i64 first_expert = static_cast<i64>(blockIdx.y) * kExpertsPerBlock;
  for (int i = static_cast<int>(threadIdx.x); i < kExpertsPerBlock; i += kThreads) {
    counts[i] = 0;
  }
  __syncthreads();
  for (i64 route = begin + threadIdx.x; route < end; route += kThreads) {
    const i64 expert = indices[group * routes + route] - first_expert;
    if (expert >= 0 && expert < kExpertsPerBlock) {
      atomicAdd(&counts[expert], 1);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kExpertsPerBlock && first_expert + i < experts;
       i += kThreads) {
    partial[blockIdx.x * experts + first_expert + i] = counts[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    expert_fractions_sum_kernel(i64 elements, i64 chunks, i64 experts, float tokens,
                                const i32* __restrict__ partial, float* __restrict__ f) {
  const i64 element = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  if (element >= elements) {
    return;
  }
  const i32* from = partial + element / experts * chunks * experts + element % experts;
  i32 count = 0;
  for (i64 chunk = 0; chunk < chunks; ++chunk) {
    count += from[chunk * experts];
  }
  f[element] = static_cast<float>(count) / tokens;
}

}  // namespace

void ExpertFractions::launch_cuda(const ir::CudaContext& context) const {
  const i64 groups = context.output(0).dim(0);
  const i64 routes = tokens_per_group_ * context.input(0).dim(1);
  const i64 chunks = ceil_div(routes, kRoutesPerChunk);
  auto* partial = reinterpret_cast<i32*>(context.workspace);
  if (groups == 0) {
    return;
  }
  if (chunks > 0) {
    const dim3 grid(blocks_for(groups * chunks, 1), blocks_for(experts_, kExpertsPerBlock));
    expert_fractions_count_kernel<<<grid, kThreads, 0, context.stream>>>(routes, chunks, experts_,
                                                                         context.input(0).as<i32>(), partial);
    WYCH_CUDA_LAUNCHED();
  }
  expert_fractions_sum_kernel<<<blocks_for(groups * experts_, kThreads), kThreads, 0, context.stream>>>(
      groups * experts_, chunks, experts_, static_cast<float>(tokens_per_group_), partial,
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
