// One warp a token, which reads its row once and writes it k times; further warps look for pad rows, 32 each,
// and fill them with zeros. Bytes: an element of x read, one of the rows written.
#include "kernels/cuda_rows.cuh"
#include "ops/moe_permute.h"

namespace wych::ops {
namespace {

using kernels::kPackWidth;
using kernels::kRowsPerBlock;
using kernels::kRowThreads;
using kernels::kWarp;
using kernels::lane_index;
using kernels::Pack;

constexpr int kBatch = 4;  // packs of a lane on their way

template <class T>
struct PermuteParams {
  i64 tokens;
  i64 capacity;
  int k;
  int width;
  const i32* used_rows;
  const i32* row_of_route;
  const i32* route_of_row;
  const T* x;
  T* rows;
};

template <class T, int kWidth>
__device__ void copy_token(const PermuteParams<T>& params, i64 token) {
  const int packs = params.width / kWidth;
  const auto* from = reinterpret_cast<const Pack<T, kWidth>*>(params.x) + token * packs;
  auto* rows = reinterpret_cast<Pack<T, kWidth>*>(params.rows);
  for (int first = lane_index(); first < packs; first += kBatch * kWarp) {
    Pack<T, kWidth> row[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (first + b * kWarp < packs) {
        row[b] = from[first + b * kWarp];
      }
    }
    for (int j = 0; j < params.k; ++j) {
      Pack<T, kWidth>* to = rows + static_cast<i64>(params.row_of_route[token * params.k + j]) * packs;
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b * kWarp < packs) {
          to[first + b * kWarp] = row[b];
        }
      }
    }
  }
}

// Rows [32 group, 32 (group + 1)).
template <class T, int kWidth>
__device__ void clear_pads(const PermuteParams<T>& params, i64 group) {
  const int packs = params.width / kWidth;
  const i64 own = group * kWarp + lane_index();
  const bool is_pad = own < params.capacity && own < *params.used_rows && params.route_of_row[own] < 0;
  unsigned pads = __ballot_sync(0xffffffffU, is_pad);
  for (; pads != 0; pads &= pads - 1) {
    const i64 row = group * kWarp + __ffs(static_cast<int>(pads)) - 1;
    Pack<T, kWidth>* to = reinterpret_cast<Pack<T, kWidth>*>(params.rows) + row * packs;
    for (int i = lane_index(); i < packs; i += kWarp) {
      to[i] = Pack<T, kWidth>{};
    }
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kRowThreads) moe_permute_kernel(const PermuteParams<T> params) {
  const i64 warp = kernels::warp_row();
  if (warp < params.tokens) {
    copy_token<T, kWidth>(params, warp);
  } else {
    clear_pads<T, kWidth>(params, warp - params.tokens);
  }
}

}  // namespace

void MoePermute::launch_cuda(const ir::CudaContext& context) const {
  const i64 tokens = context.input(0).dim(0);
  const i64 capacity = context.output(0).dim(0);
  const unsigned blocks = kernels::blocks_for(tokens + ceil_div(capacity, i64{kWarp}), kRowsPerBlock);
  if (blocks == 0) {
    return;
  }
  kernels::dispatch_cuda(context.input(0).type->dtype, [&]<class T>(T) {
    const PermuteParams<T> params = {tokens,
                                     capacity,
                                     static_cast<int>(context.input(2).dim(1)),
                                     static_cast<int>(context.input(0).dim(1)),
                                     context.input(3).as<i32>() + context.input(3).dim(0) - 1,
                                     context.input(2).as<i32>(),
                                     context.input(1).as<i32>(),
                                     kernels::device_cast<T>(context.input(0)),
                                     kernels::device_cast<T>(context.output(0))};
    if (kernels::are_packs<T>(params.width, {params.x, params.rows})) {
      moe_permute_kernel<T, kPackWidth<T>><<<blocks, kRowThreads, 0, context.stream>>>(params);
    } else {
      moe_permute_kernel<T, 1><<<blocks, kRowThreads, 0, context.stream>>>(params);
    }
  });
  WYCH_CUDA_LAUNCHED();
}

}  // namespace wych::ops
