// One sweep: reads p, g, m, v and writes p, m, v, 28 bytes an element; the step's scalars are worked out from
// the decision by every thread once. A step that is not applied touches nothing.
#include <algorithm>

#include "kernels/cuda_launch.cuh"
#include "ops/adamw.h"
#include "ops/step_decision.h"

namespace wych::ops {
namespace {

constexpr int kThreads = 256;
constexpr i64 kBlocksPerSm = 8;

struct Params {
  i64 count;
  const float* g;
  float* p;
  float* m;
  float* v;
  const double* decision;
  AdamWOptions options;
};

struct Scalars {
  float clip, blend1, keep2, blend2, shrink, step, root, eps;
};

__device__ void update(const Scalars& s, float gradient, float& p, float& m, float& v) {
  gradient *= s.clip;
  m += s.blend1 * (gradient - m);
  v = v * s.keep2 + s.blend2 * (gradient * gradient);
  p = p * s.shrink - s.step * (m / (sqrtf(v) * s.root + s.eps));
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads) adamw_kernel(const Params params) {
  const double* decision = params.decision;
  if (decision[Decision::kApplied] == 0) {
    return;
  }
  const double rate = decision[Decision::kLearningRate];
  const Scalars s{static_cast<float>(decision[Decision::kClipCoefficient]),
                  static_cast<float>(1 - params.options.beta1),
                  static_cast<float>(params.options.beta2),
                  static_cast<float>(1 - params.options.beta2),
                  static_cast<float>(1 - rate * params.options.weight_decay),
                  static_cast<float>(rate / decision[Decision::kBiasCorrection1]),
                  static_cast<float>(1 / sqrt(decision[Decision::kBiasCorrection2])),
                  static_cast<float>(params.options.eps)};
  const i64 first = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
  const i64 stride = static_cast<i64>(gridDim.x) * kThreads;
  if constexpr (kVectors) {
    for (i64 i = first; i < params.count / 4; i += stride) {
      const float4 g = reinterpret_cast<const float4*>(params.g)[i];
      float4 p = reinterpret_cast<float4*>(params.p)[i];
      float4 m = reinterpret_cast<float4*>(params.m)[i];
      float4 v = reinterpret_cast<float4*>(params.v)[i];
      update(s, g.x, p.x, m.x, v.x);
      update(s, g.y, p.y, m.y, v.y);
      update(s, g.z, p.z, m.z, v.z);
      update(s, g.w, p.w, m.w, v.w);
      reinterpret_cast<float4*>(params.p)[i] = p;
      reinterpret_cast<float4*>(params.m)[i] = m;
      reinterpret_cast<float4*>(params.v)[i] = v;
    }
  } else {
    for (i64 i = first; i < params.count; i += stride) {
      update(s, params.g[i], params.p[i], params.m[i], params.v[i]);
    }
  }
}

}  // namespace

void AdamW::launch_cuda(const ir::CudaContext& context) const {
  const i64 count = context.input(0).elements();
  if (count == 0) {
    return;
  }
  const Params params{count,
                      context.input(1).as<float>(),
                      context.output(0).as<float>(),
                      context.output(1).as<float>(),
                      context.output(2).as<float>(),
                      context.input(4).as<double>(),
                      options_};
  const bool vectors = count % 4 == 0;  // slots are aligned to 256 bytes
  const i64 blocks =
      std::min(ceil_div(vectors ? count / 4 : count, kThreads), kBlocksPerSm * context.target.num_sms);
  if (vectors) {
    adamw_kernel<true><<<kernels::blocks_for(blocks, 1), kThreads, 0, context.stream>>>(params);
  } else {
    adamw_kernel<false><<<kernels::blocks_for(blocks, 1), kThreads, 0, context.stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
