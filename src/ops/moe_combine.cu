// Gathers of whole rows: a warp a token and its k rows (combine), a warp a row of the result (drows), a warp
// a route (dweights). Bytes: each used row once, each token's row once.
#include "kernels/cuda_rows.cuh"
#include "ops/moe_combine.h"

namespace wych::ops {
namespace {

using kernels::blocks_for;
using kernels::kPackWidth;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;
using kernels::load_float;
using kernels::Pack;
using kernels::store_float;

template <class T>
struct CombineParams {
  i64 tokens;
  i64 k;
  i64 width;
  const T* rows;
  const i32* row_of_route;
  const float* weights;  // null: a plain sum
  T* out;
};

template <class T, int kWidth, bool kWeighted>
__global__ void __launch_bounds__(kRowThreads) moe_combine_kernel(const CombineParams<T> params) {
  const i64 token = kernels::warp_row();
  if (token >= params.tokens) {
    return;
  }
  const i64 packs = params.width / kWidth;
  const auto* rows = reinterpret_cast<const Pack<T, kWidth>*>(params.rows);
  auto* out = reinterpret_cast<Pack<T, kWidth>*>(params.out) + token * packs;
  for (i64 column = lane_index(); column < packs; column += kWarp) {
    float sums[kWidth] = {};
    for (i64 j = 0; j < params.k; ++j) {
      const i64 route = token * params.k + j;
      const Pack<T, kWidth> row = rows[params.row_of_route[route] * packs + column];
      const float weight = kWeighted ? params.weights[route] : 1.0F;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float value = load_float(&row.values[i]);
        const float term = kWeighted ? weight * value : value;
        sums[i] = j == 0 ? term : sums[i] + term;
      }
    }
    Pack<T, kWidth> sum;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      store_float(&sum.values[i], sums[i]);
    }
    out[column] = sum;
  }
}

template <bool kWeighted, class T>
void launch_combine(CUstream_st* stream, const CombineParams<T>& params) {
  const unsigned blocks = blocks_for(params.tokens, kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  if (kernels::are_packs<T>(params.width, {params.rows, params.out})) {
    moe_combine_kernel<T, kPackWidth<T>, kWeighted><<<blocks, kRowThreads, 0, stream>>>(params);
  } else {
    moe_combine_kernel<T, 1, kWeighted><<<blocks, kRowThreads, 0, stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

template <class T>
struct DweightsParams {
  i64 routes;
  i64 k;
  i64 width;
  const T* dout;
  const T* rows;
  const i32* row_of_route;
  float* dweights;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads) moe_combine_dweights_kernel(const DweightsParams<T> params) {
  const i64 route = kernels::warp_row();
  if (route >= params.routes) {
    return;
  }
  const i64 packs = params.width / kWidth;
  const auto* a = reinterpret_cast<const Pack<T, kWidth>*>(params.dout) + route / params.k * packs;
  const auto* b = reinterpret_cast<const Pack<T, kWidth>*>(params.rows) + params.row_of_route[route] * packs;
  float dot = 0;
#pragma unroll 4
  for (i64 column = lane_index(); column < packs; column += kWarp) {
    const Pack<T, kWidth> x = a[column];
    const Pack<T, kWidth> y = b[column];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      dot = fmaf(load_float(&x.values[i]), load_float(&y.values[i]), dot);
    }
  }
  dot = kernels::warp_sum(dot);
  if (lane_index() == 0) {
    params.dweights[route] = dot;
  }
}

// A lane takes single float32 elements, which fill a line a warp, and packs of bfloat16.
template <class T>
void launch_dweights(CUstream_st* stream, const DweightsParams<T>& params) {
  constexpr int kWidth = sizeof(T) == sizeof(float) ? 1 : kPackWidth<T>;
  const unsigned blocks = blocks_for(params.routes, kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  if (kernels::are_packs<T>(params.width, {params.dout, params.rows})) {
    moe_combine_dweights_kernel<T, kWidth><<<blocks, kRowThreads, 0, stream>>>(params);
  } else {
    moe_combine_dweights_kernel<T, 1><<<blocks, kRowThreads, 0, stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

}  // namespace

void MoeCombine::launch_cuda(const ir::CudaContext& context) const {
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const CombineParams<T> params = {context.output(0).dim(0),
                                     context.input(1).dim(1),
                                     context.input(0).dim(1),
                                     kernels::device_cast<T>(context.input(0)),
                                     context.input(1).as<i32>(),
                                     weighted_ ? context.input(4).as<float>() : nullptr,
                                     kernels::device_cast<T>(context.output(0))};
    if (weighted_) {
      launch_combine<true>(context.stream, params);
    } else {
      launch_combine<false>(context.stream, params);
    }
  });
}

void MoeCombineDrows::launch_cuda(const ir::CudaContext& context) const {
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const kernels::GatherRoutedParams<T> params = {context.input(0).dim(1),
                                                   context.output(0).dim(0),
                                                   context.input(1).dim(1),
                                                   context.input(3).as<i32>() + context.input(3).dim(0) - 1,
                                                   context.input(2).as<i32>(),
                                                   context.input(1).as<float>(),
                                                   kernels::device_cast<T>(context.input(0)),
                                                   kernels::device_cast<T>(context.output(0))};
    kernels::launch_gather_routed<true>(context.stream, params);
  });
}

void MoeCombineDweights::launch_cuda(const ir::CudaContext& context) const {
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const DweightsParams<T> params = {context.output(0).elements(),
                                      context.input(2).dim(1),
                                      context.input(0).dim(1),
                                      kernels::device_cast<T>(context.input(0)),
                                      kernels::device_cast<T>(context.input(1)),
                                      context.input(2).as<i32>(),
                                      context.output(0).as<float>()};
    launch_dweights(context.stream, params);
  });
}

}  // namespace wych::ops
