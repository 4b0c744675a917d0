// One warp a row; warps of rows behind the last segment return at once: how many rows count is read on the
// device. Bytes of bfloat16: 6 an element of h, the gradient 10. A route's weight gets its gradient from the
// row's warp, in one fixed order.
#include "kernels/cuda_gated.cuh"
#include "ops/moe_swiglu.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::device_cast;
using kernels::kPackWidth;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;

struct Routed {
  int width;        // of the activation
  const i32* used;  // rows
  const i32* route_of_row;
  const float* weights;
};

// The weight of the row's route; pad rows have none.
__device__ float weight_of(const Routed& routed, i64 route) { return route < 0 ? 0 : routed.weights[route]; }

template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads)
    moe_swiglu_kernel(const Routed routed, const T* __restrict__ gu, T* __restrict__ h) {
  const i64 row = kernels::warp_row();
  if (row >= *routed.used) {
    return;
  }
  const float weight = weight_of(routed, routed.route_of_row[row]);
  kernels::gated_row<T, kWidth>(routed.width, gu + 2 * row * routed.width, weight, h + row * routed.width);
}

// dgu may be gu.
template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads)
    moe_swiglu_dx_kernel(const Routed routed, const T* __restrict__ dh, const T* gu, T* dgu,
                         float* __restrict__ dweights) {
  const i64 row = kernels::warp_row();
  if (row >= *routed.used) {
    return;
  }
  const i64 route = routed.route_of_row[row];
  const i64 first = 2 * row * routed.width;
  const float sum = kernels::warp_sum(kernels::gated_row_dx<T, kWidth>(
      routed.width, dh + row * routed.width, gu + first, weight_of(routed, route), dgu + first));
  if (kernels::lane_index() == 0 && route >= 0) {
    dweights[route] = sum;
  }
}

Routed routed_of(std::span<const ir::View> inputs, i64 width) {
  return {static_cast<int>(width), inputs[2].as<i32>() + inputs[2].elements() - 1, inputs[1].as<i32>(),
          inputs[0].as<float>()};
}

}  // namespace

void MoeSwiglu::launch_cuda(const ir::CudaContext& context) const {
  const i64 width = context.output(0).dim(1);
  const unsigned blocks = blocks_for(context.output(0).dim(0), kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  const Routed routed = routed_of(context.inputs.subspan(1), width);
  kernels::dispatch_cuda(context.output(0).type->dtype, [&]<class T>(T) {
    const T* gu = device_cast<const T>(context.input(0));
    T* h = device_cast<T>(context.output(0));
    if (kernels::are_packs<T>(width, {gu, h})) {
      moe_swiglu_kernel<T, kPackWidth<T>><<<blocks, kRowThreads, 0, context.stream>>>(routed, gu, h);
    } else {
      moe_swiglu_kernel<T, 1><<<blocks, kRowThreads, 0, context.stream>>>(routed, gu, h);
    }
  });
  WYCH_CUDA_LAUNCHED();
}

void MoeSwigluDx::launch_cuda(const ir::CudaContext& context) const {
  const i64 width = context.input(0).dim(1);
  const unsigned blocks = blocks_for(context.input(0).dim(0), kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  const Routed routed = routed_of(context.inputs.subspan(2), width);
  auto* dweights = context.output(1).as<float>();
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const T* dh = device_cast<const T>(context.input(0));
    const T* gu = device_cast<const T>(context.input(1));
    T* dgu = device_cast<T>(context.output(0));
    if (kernels::are_packs<T>(width, {dh, gu, dgu})) {
      moe_swiglu_dx_kernel<T, kPackWidth<T>>
          <<<blocks, kRowThreads, 0, context.stream>>>(routed, dh, gu, dgu, dweights);
    } else {
      moe_swiglu_dx_kernel<T, 1><<<blocks, kRowThreads, 0, context.stream>>>(routed, dh, gu, dgu, dweights);
    }
  });
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
