// One block a token: the cosine and sine of every pair once, in shared memory, for all heads. Frequencies are
// computed on the host and travel with the launch, so that they are the CPU's to the bit; the angle is one
// float32 product as there. 8 bytes a float32 element; values move only if the output is another buffer.
#include "kernels/cuda_launch.cuh"
#include "ops/rope.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kMaxPairs = 512;  // what the arguments of a launch hold with ease

// Everything but the data. Pair i of a head turns by position * frequencies[i].
struct RopeParams {
  i64 sequence;
  int width;
  int value_column;  // rotated heads end here
  int half;          // pairs of a head
  bool inverse;
  float scale;  // of cosine and sine
  float frequencies[kMaxPairs];
};

// `out` may be `qkv`.
__global__ void __launch_bounds__(kThreads)
    rope_kernel(const __grid_constant__ RopeParams params, const float* qkv,
                const i32* __restrict__ document_start, float* out) {
  __shared__ float cosines[kMaxPairs];
  __shared__ float sines[kMaxPairs];
  const i64 token = blockIdx.x;
  const int half = params.half;
  const i64 position = token % params.sequence - document_start[token];
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    const float angle = static_cast<float>(position) * params.frequencies[i];
    cosines[i] = cosf(angle) * params.scale;
    sines[i] = (params.inverse ? -sinf(angle) : sinf(angle)) * params.scale;
  }
  __syncthreads();
  const float* from = qkv + token * params.width;
  float* to = out + token * params.width;
  for (int pair = static_cast<int>(threadIdx.x); pair < params.value_column / 2; pair += kThreads) {
    const int i = pair % half;
    const int first = pair / half * 2 * half + i;
    const float x1 = from[first];
    const float x2 = from[first + half];
    to[first] = x1 * cosines[i] - x2 * sines[i];
    to[first + half] = x2 * cosines[i] + x1 * sines[i];
  }
  if (from != to) {
    for (int c = params.value_column + static_cast<int>(threadIdx.x); c < params.width; c += kThreads) {
      to[c] = from[c];
    }
  }
}

}  // namespace

void Rope::launch_cuda(const ir::CudaContext& context) const {
  const HeadLayout& layout = shape_.layout;
  const i64 tokens = context.input(0).dim(0);
  if (tokens == 0) {
    return;
  }
  WYCH_CHECK(layout.head_dim <= 2 * kMaxPairs, "head_dim {}", layout.head_dim);
  RopeParams params{shape_.sequence,
                    static_cast<int>(layout.width()),
                    static_cast<int>(layout.value_column()),
                    static_cast<int>(layout.head_dim / 2),
                    inverse_,
                    static_cast<float>(shape_.yarn.factor != 1.0 ? shape_.yarn.attention_factor : 1.0),
                    {}};
  fill_frequencies(shape_, params.frequencies);
  rope_kernel<<<kernels::blocks_for(tokens, 1), kThreads, 0, context.stream>>>(
      params, context.input(0).as<float>(), context.input(1).as<i32>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
