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
using kernels::Pack;

struct CombineParams {
  i64 tokens;
  i64 k;
  i64 width;
  const float* rows;
  const i32* row_of_route;
  const float* weights;  // null: a plain sum
  float* out;
};

template <int kWidth, bool kWeighted>
__global__ void __launch_bounds__(kRowThreads) moe_combine_kernel(const CombineParams params) {
  const i64 token = kernels::warp_row();
  if (token >= params.tokens) {
    return;
  }
  const i64 packs = params.width / kWidth;
  const auto* rows = reinterpret_cast<const Pack<kWidth>*>(params.rows);
  auto* out = reinterpret_cast<Pack<kWidth>*>(params.out) + token * packs;
  for (i64 column = lane_index(); column < packs; column += kWarp) {
    Pack<kWidth> sum = {};
    for (i64 j = 0; j < params.k; ++j) {
      const i64 route = token * params.k + j;
      const Pack<kWidth> row = rows[params.row_of_route[route] * packs + column];
      const float weight = kWeighted ? params.weights[route] : 1.0F;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float term = kWeighted ? weight * row.values[i] : row.values[i];
        sum.values[i] = j == 0 ? term : sum.values[i] + term;
      }
    }
    out[column] = sum;
  }
}

template <bool kWeighted>
void launch_combine(CUstream_st* stream, const CombineParams& params) {
  const unsigned blocks = blocks_for(params.tokens, kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  if (kernels::are_packs(params.width, {params.rows, params.out})) {
    moe_combine_kernel<kPackWidth, kWeighted><<<blocks, kRowThreads, 0, stream>>>(params);
  } else {
    moe_combine_kernel<1, kWeighted><<<blocks, kRowThreads, 0, stream>>>(params);
  }
  WYCH_CUDA_LAUNCHED();
}

__global__ void __launch_bounds__(kRowThreads)
    moe_combine_dweights_kernel(i64 routes, i64 k, i64 width, const float* __restrict__ dout,
                                const float* __restrict__ rows, const i32* __restrict__ row_of_route,
                                float* __restrict__ dweights) {
  const i64 route = kernels::warp_row();
  if (route >= routes) {
    return;
  }
  const float* a = dout + route / k * width;
  const float* b = rows + row_of_route[route] * width;
  float dot = 0;
#pragma unroll 4
  for (i64 i = lane_index(); i < width; i += kWarp) {
    dot = fmaf(a[i], b[i], dot);
  }
  dot = kernels::warp_sum(dot);
  if (lane_index() == 0) {
    dweights[route] = dot;
  }
}

}  // namespace

void MoeCombine::launch_cuda(const ir::CudaContext& context) const {
  const CombineParams params = {
      context.output(0).dim(0),     context.input(1).dim(1),
      context.input(0).dim(1),      context.input(0).as<float>(),
      context.input(1).as<i32>(),   weighted_ ? context.input(4).as<float>() : nullptr,
      context.output(0).as<float>()};
  if (weighted_) {
    launch_combine<true>(context.stream, params);
  } else {
    launch_combine<false>(context.stream, params);
  }
}

void MoeCombineDrows::launch_cuda(const ir::CudaContext& context) const {
  const kernels::GatherRoutedParams params = {
      context.input(0).dim(1),      context.output(0).dim(0),
      context.input(1).dim(1),      context.input(3).as<i32>() + context.input(3).dim(0) - 1,
      context.input(2).as<i32>(),   context.input(1).as<float>(),
      context.input(0).as<float>(), context.output(0).as<float>()};
  kernels::launch_gather_routed<true>(context.stream, params);
}

void MoeCombineDweights::launch_cuda(const ir::CudaContext& context) const {
  const i64 routes = context.output(0).elements();
  if (routes == 0) {
    return;
  }
  moe_combine_dweights_kernel<<<blocks_for(routes, kRowsPerBlock), kRowThreads, 0, context.stream>>>(
      routes, context.input(2).dim(1), context.input(0).dim(1), context.input(0).as<float>(),
      context.input(1).as<float>(), context.input(2).as<i32>(), context.output(0).as<float>());
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
