// Four elements a thread, those of one block of the generator; the bits are the CPU's (base/philox.h).
#include "base/philox.h"
#include "kernels/cuda_launch.cuh"
#include "ops/random_normal.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    random_normal_kernel(i64 count, const i64* seed, u64 hash, float mean, float std, float* out) {
  const i64 block = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  const RandomStream stream = random_stream(static_cast<u64>(*seed), 0, hash);
  const PhiloxBlock words = random_block(stream, static_cast<u64>(block));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (4 * block + i < count) {
      out[4 * block + i] = mean + std * normal_from_word(words.words[i]);
    }
  }
}

}  // namespace

void RandomNormal::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = type_.elements();
  if (count == 0) {
    return;
  }
  random_normal_kernel<<<kernels::blocks_for(count, 4 * kThreads), kThreads, 0, context.stream>>>(
      count, context.input(0).as<i64>(), name_hash_, static_cast<float>(mean_), static_cast<float>(std_),
      context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
