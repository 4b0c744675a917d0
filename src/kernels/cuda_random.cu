#include "kernels/cuda_random.h"

#include "base/philox.h"
#include "kernels/cuda_launch.cuh"

namespace wych::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    normal_kernel(RandomStream stream, float std, i64 count, T* data) {
  const i64 block = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  const PhiloxBlock words = random_block(stream, static_cast<u64>(block));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (4 * block + i < count) {
      store_float(data + 4 * block + i, std * normal_from_word(words.words[i]));
    }
  }
}

template <class T>
void fill(CUstream_st* stream, u64 seed, float std, i64 count, T* data) {
  if (count == 0) {
    return;
  }
  const RandomStream numbers = random_stream(seed, 0, 0);
  normal_kernel<<<blocks_for(count, 4 * kThreads), kThreads, 0, stream>>>(numbers, std, count, data);
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void cuda_fill_normal(CUstream_st* stream, u64 seed, float std, i64 count, __nv_bfloat16* data) {
  fill(stream, seed, std, count, data);
}
void cuda_fill_normal(CUstream_st* stream, u64 seed, float std, i64 count, float* data) {
  fill(stream, seed, std, count, data);
}

}  // namespace wych::kernels
